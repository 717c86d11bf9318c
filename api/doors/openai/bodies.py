"""Requests of the Responses API, and what they are to the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.contracts.waits import ToolResult

_DATA_URL: Final = "data:"
_SYSTEM: Final = frozenset({"system", "developer"})


class _Read(BaseModel):
    """A part of a request. Clients send fields that concern only OpenAI's own service: those are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Tool(_Read):
    """A function of the client."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: JsonObject | None = None


class TextFormat(_Read):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    json_schema: JsonObject | None = Field(None, alias="schema")


class Text(_Read):
    """The text of the answer."""

    format: TextFormat | None = None


class Conversation(_Read):
    """A conversation by its id."""

    id: str


class CreateResponse(_Read):
    """The body of ``POST /responses``. `model` is the id of an agent."""

    model: str | None = None
    input: str | Annotated[list[JsonObject], Field(max_length=2_000)] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | Conversation | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: str | JsonObject | None = None
    text: Text | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    stream: StrictBool | None = None
    background: StrictBool | None = None
    store: StrictBool | None = None


class Given(_Read):
    """What the input of a request has."""

    message: list[ContentBlock]
    instructions: list[str]
    results: list[ToolResult]


def given_input(body: CreateResponse) -> Given:
    """Return the input: the message, what instructs the agent, and results of calls.

    Raises:
        InvalidInput: A part is of a kind that a fleet has no place for; names the field.
    """
    items: list[Any] = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input or []
    message: list[ContentBlock] = []
    instructions = [body.instructions] if body.instructions else []
    results: list[ToolResult] = []
    for at, item in enumerate(items):
        field = f"input.{at}"
        match item:
            case {"type": "function_call_output", "call_id": str(call_id), "output": output}:
                results.append(_result(call_id, output, field))
            case {"role": str(role), "content": content} if role in _SYSTEM:
                instructions.extend(str(block.get("text", "")) for block in _blocks(content, f"{field}.content"))
            case {"role": "user", "content": content}:
                message.extend(_blocks(content, f"{field}.content"))
            case _:
                raise InvalidInput(
                    f"{field} is neither a message of a user, system or developer nor a function_call_output. What was "
                    "said before is in the conversation: give previous_response_id or conversation, and only what is "
                    "new.",
                    field=field,
                )
    return Given(message=message, instructions=instructions, results=results)


def run_of(body: CreateResponse, given: Given, thread_id: str | None, *, is_new: bool) -> StatelessRunCreate:
    """Return the message of a request with the options of its run. One that is new is for a new thread of an agent.

    Raises:
        InvalidInput: It has no message, or an option that no agent has or beyond its bounds; names the field.
    """
    if not given.message:
        raise InvalidInput("input has no message of a user.", field="input")
    if is_new and not body.model:
        raise InvalidInput("Give the id of an agent as the model; GET /openai/v1/models lists them.", field="model")
    options: dict[str, Any] = {
        "client_tools": tuple(_tool(tool, f"tools.{at}") for at, tool in enumerate(body.tools or ())),
        "instructions": "\n\n".join(given.instructions) or None,
        "temperature": body.temperature,
        "max_output_tokens": body.max_output_tokens,
        "output_schema": _schema(body),
        "tool_choice": _choice(body.tool_choice),
    }
    given_options = {name: value for name, value in options.items() if value not in (None, ())}
    try:
        return _run(body, given, thread_id, given_options, is_new=is_new)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        field = place.replace("client_tools", "tools", 1).replace("agent_id", "model", 1)
        raise InvalidInput(f"{field or 'The request'}: {first['msg']}.", field=field or "body") from error


def _run(
    body: CreateResponse, given: Given, thread_id: str | None, options: dict[str, Any], *, is_new: bool
) -> StatelessRunCreate:
    return StatelessRunCreate(
        message=given.message,
        thread_id=thread_id,
        agent_id=body.model if is_new else None,
        # What is not stored is in no list, and is deleted within a day.
        ephemeral=is_new and body.store is False,
        metadata=dict(body.metadata or {}),
        **options,
    )


def _result(call_id: str, output: Any, field: str) -> ToolResult:
    content = output if isinstance(output, str) else _blocks(output, f"{field}.output")
    try:
        return ToolResult(tool_call_id=call_id, content=content)
    except ValidationError as error:
        first = error.errors()[0]
        wrong = "call_id" if first["loc"][:1] == ("tool_call_id",) else "output"
        raise InvalidInput(f"{field}.{wrong}: {first['msg']}.", field=f"{field}.{wrong}") from error


def _tool(tool: Tool, field: str) -> JsonObject:
    if tool.type != "function":
        raise InvalidInput(
            f"{field} has the type {tool.type!r:.80}; a client may bring tools of the type 'function'. Those of an "
            "agent are in its configuration.",
            field=f"{field}.type",
        )
    return {
        "name": tool.name,
        "description": tool.description or "",
        "input_schema": tool.parameters or {"type": "object"},
    }


def _choice(choice: str | JsonObject | None) -> str | JsonObject | None:
    match choice:
        case {"type": "function", "name": str(name)}:
            return {"name": name}
        case None | "auto" | "none" | "required":
            return choice
        case _:
            raise InvalidInput(
                "tool_choice must be 'auto', 'none', 'required' or a function by its name.", field="tool_choice"
            )


def _schema(body: CreateResponse) -> JsonObject | None:
    form = None if body.text is None else body.text.format
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "object"}
    if form.json_schema is None:
        raise InvalidInput("text.format.schema is missing.", field="text.format.schema")
    return form.json_schema


def _blocks(content: Any, field: str) -> list[ContentBlock]:
    if isinstance(content, str):
        return [text_block(content)]
    parts: Sequence[Any] = content if isinstance(content, list) else [content]
    return [_block(part, f"{field}.{at}") for at, part in enumerate(parts)]


def _block(part: Any, field: str) -> ContentBlock:
    match part:
        case {"type": "input_text" | "text" | "output_text", "text": str(text)}:
            return text_block(text)
        case {"type": "input_image", "image_url": str(url)}:
            return {"type": "image", "source": _source(url, f"{field}.image_url")}
        case {"type": "input_file", "file_data": str(data)}:
            return {"type": "document", "source": _source(data, f"{field}.file_data")}
        case {"type": "input_file", "file_url": str(url)}:
            return {"type": "document", "source": {"type": "url", "url": url}}
        case _:
            raise InvalidInput(
                f"{field} must be an input_text, an input_image with an image_url, or an input_file with file_data or "
                "a file_url.",
                field=field,
            )


def _source(url: str, field: str) -> JsonObject:
    if not url.startswith(_DATA_URL):
        return {"type": "url", "url": url}
    kind, comma, data = url.removeprefix(_DATA_URL).partition(",")
    media_type, _, encoding = kind.partition(";")
    if not comma or encoding != "base64":
        raise InvalidInput(f"{field} must be a data URL in base64.", field=field)
    return {"type": "base64", "media_type": media_type, "data": data}
