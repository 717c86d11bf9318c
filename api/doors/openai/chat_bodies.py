"""Requests of the Chat Completions API, and what they are to the fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.contracts.waits import MAX_CLIENT_TOOLS, ToolResult

from .parts import GOES_ON

_INSTRUCTING: Final = frozenset({"system", "developer"})
_ROLES: Final = frozenset({*_INSTRUCTING, "user", "assistant", "tool"})
_DATA_URL: Final = "data:"


class _Read(BaseModel):
    """A part of a request. Fields that are not named here are hints for OpenAI's own service, and passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class JsonSchema(_Read):
    """The schema of the answer."""

    name: str | None = None
    json_schema: JsonObject | None = Field(None, alias="schema")


class ResponseFormat(_Read):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class Function(_Read):
    """A function of the client."""

    name: str = ""
    description: str | None = None
    parameters: JsonObject | None = None


class Tool(_Read):
    """A tool of the client."""

    type: str = "function"
    function: Function | None = None


class StreamOptions(_Read):
    """What a stream has."""

    include_usage: StrictBool | None = None


class CreateCompletion(_Read):
    """The body of ``POST /chat/completions``. `model` is the id of an agent."""

    model: str
    messages: Annotated[list[JsonObject], Field(min_length=1, max_length=5_000)]
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_CLIENT_TOOLS)] | None = None
    tool_choice: str | JsonObject | None = None
    response_format: ResponseFormat | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    store: StrictBool | None = None
    user: str | JsonObject | None = None
    safety_identifier: str | None = None
    n: int | None = None
    stop: Any = None
    logprobs: StrictBool | None = None
    top_logprobs: int | None = None
    modalities: list[str] | None = None
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    web_search_options: Any = None

    @property
    def includes_usage(self) -> bool:
        """Whether the last chunk of a stream is the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


_REFUSED: Final[Mapping[str, tuple[tuple[Any, ...], str]]] = {
    # Field → the values that mean nothing, and why others are refused.
    "n": ((1,), "an agent gives one answer; send the request again for another"),
    "stop": (("", []), "an agent has no stop sequences"),
    "logprobs": ((False,), "an agent gives no probabilities"),
    "top_logprobs": ((0,), "an agent gives no probabilities"),
    "modalities": ((["text"], []), "an agent answers with text"),
    "audio": ((), "an agent answers with text"),
    "functions": (([],), "it was replaced: use tools"),
    "function_call": ((), "it was replaced: use tool_choice"),
    "web_search_options": ((), "whether an agent searches the web is in its configuration"),
}


class Said(NamedTuple):
    """A message of a request.

    Attributes:
        at: Its place in the request.
        calls: Calls of a message of the assistant.
        call_id: What a message of a tool answers.
    """

    at: int
    role: Literal["user", "assistant", "tool"]
    content: list[ContentBlock]
    calls: list[JsonObject]
    call_id: str = ""

    @property
    def text(self) -> str:
        """Its text."""
        return "\n".join(str(block["text"]) for block in self.content if block.get("type") == "text")


class Conversation(NamedTuple):
    """The messages of a request.

    Attributes:
        past: What was said before.
        message: What the user says now.
        results: Results of the calls with which `past` ends; then there is no message.
    """

    instructions: list[str]
    past: list[Said]
    message: list[Said]
    results: list[Said]

    def without_results(self) -> Conversation:
        """Return the same with the results as what was said before."""
        go_on = Said(self.results[-1].at, "user", [text_block(GOES_ON)], [])
        return Conversation(self.instructions, [*self.past, *self.results], [go_on], [])


def conversation_of(body: CreateCompletion) -> Conversation:
    """Return the messages of a request.

    Raises:
        InvalidInput: A field or a message is of a kind that a fleet has no place for; names it.
    """
    for field, (neutral, why) in _REFUSED.items():
        value = getattr(body, field)
        if value is not None and value not in neutral:
            raise InvalidInput(f"{field} is refused: {why}.", field=field)
    instructions: list[str] = []
    said: list[Said] = []
    for at, message in enumerate(body.messages):
        field = f"messages.{at}"
        role: Any = message.get("role")
        if role not in _ROLES:
            raise InvalidInput(
                f"{field}.role must be 'system', 'developer', 'user', 'assistant' or 'tool'.", field=f"{field}.role"
            )
        content = list(_blocks(message.get("content"), f"{field}.content", may_lack=role in {"assistant", "tool"}))
        if role in _INSTRUCTING:
            instructions.extend(str(block.get("text", "")) for block in content)
        elif role == "tool":
            said.append(Said(at, "tool", content, [], _call_id(message, field)))
        else:
            said.append(Said(at, role, content, _calls(message, field) if role == "assistant" else []))
    return _cut(instructions, said)


def run_of(body: CreateCompletion, conversation: Conversation) -> StatelessRunCreate:
    """Return the message of a request with the options of its run, for a new thread.

    Raises:
        InvalidInput: An option that no agent has or beyond its bounds; names the field.
    """
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    options: dict[str, Any] = {
        "client_tools": tuple(_tool(tool, f"tools.{at}") for at, tool in enumerate(body.tools or ())),
        "instructions": "\n\n".join(text for text in conversation.instructions if text.strip()) or None,
        "temperature": body.temperature,
        "max_output_tokens": limit,
        "output_schema": _schema(body.response_format),
        "tool_choice": _choice(body),
    }
    given = {name: value for name, value in options.items() if value not in (None, ())}
    try:
        return StatelessRunCreate(
            message=[block for said in conversation.message for block in said.content],
            agent_id=body.model,
            # As with OpenAI, what is kept is named. A front end keeps its chats itself.
            ephemeral=body.store is not True,
            metadata=dict(body.metadata or {}),
            **given,
        )
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "messages"
        renamed = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
        for ours, theirs in (
            ("client_tools", "tools"),
            ("agent_id", "model"),
            ("instructions", "messages"),
            ("message", "messages"),
            ("max_output_tokens", renamed),
            ("output_schema", "response_format.json_schema.schema"),
        ):
            if field == ours or field.startswith(f"{ours}."):
                field = field.replace(ours, theirs, 1)
                break
        raise InvalidInput(f"{field}: {first['msg']}.", field=field) from error


def result_of(said: Said, call_id: str) -> ToolResult:
    """Return the result of a call.

    Raises:
        InvalidInput: It is too long.
    """
    try:
        return ToolResult(tool_call_id=call_id, content=said.content)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(f"messages.{said.at}: {first['msg']}.", field=f"messages.{said.at}.content") from error


def _cut(instructions: list[str], said: list[Said]) -> Conversation:
    last = max((at for at, message in enumerate(said) if message.role == "assistant"), default=-1)
    past, new = said[: last + 1], said[last + 1 :]
    if not new:
        at = said[-1].at if said else 0
        raise InvalidInput(
            f"messages.{at} is the last message, and there is nothing to answer: end with a message of the user, or "
            "with the results of the calls before it.",
            field=f"messages.{at}",
        )
    results = [message for message in new if message.role == "tool"]
    if len(results) == len(new):
        asked = [call["id"] for call in past[-1].calls] if past else []
        answered = [message.call_id for message in results]
        for message in results:
            if message.call_id not in asked or answered.count(message.call_id) > 1:
                raise InvalidInput(
                    f"messages.{message.at}.tool_call_id: {message.call_id!r:.80} is not a call of the message of the "
                    "assistant before it, or has two results.",
                    field=f"messages.{message.at}.tool_call_id",
                )
        for call_id in asked:
            if call_id not in answered:
                raise InvalidInput(
                    f"messages.{past[-1].at} has the call {call_id!r:.80}, and no message of the role 'tool' after it "
                    "has its result.",
                    field=f"messages.{past[-1].at}.tool_calls",
                )
        return Conversation(instructions, past, [], results)
    # What is said after results of calls begins a new turn.
    first = next(at for at, message in enumerate(new) if message.role == "user")
    rest = new[first:]
    stray = next((message for message in rest if message.role == "tool"), None)
    if stray is not None:
        raise InvalidInput(
            f"messages.{stray.at} is the result of a call after a message of the user; put it before.",
            field=f"messages.{stray.at}",
        )
    for message in rest:
        if not any(block.get("type") != "text" or str(block["text"]).strip() for block in message.content):
            raise InvalidInput(f"messages.{message.at} has no content.", field=f"messages.{message.at}.content")
    return Conversation(instructions, [*past, *new[:first]], rest, [])


def _calls(message: JsonObject, field: str) -> list[JsonObject]:
    calls: list[JsonObject] = []
    given: Any = message.get("tool_calls")
    for at, call in enumerate(given or () if isinstance(given, list | None) else [given]):
        match call:
            case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
                calls.append({"id": call_id, "name": name, "arguments": arguments})
            case _:
                raise InvalidInput(
                    f"{field}.tool_calls.{at} must have an id, and a function with a name and arguments in JSON.",
                    field=f"{field}.tool_calls.{at}",
                )
    return calls


def _call_id(message: JsonObject, field: str) -> str:
    call_id: Any = message.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        raise InvalidInput(f"{field}.tool_call_id must be the id of a call.", field=f"{field}.tool_call_id")
    return call_id


def _tool(tool: Tool, field: str) -> JsonObject:
    if tool.type != "function" or tool.function is None:
        raise InvalidInput(
            f"{field} is not a function; a client may bring tools of the type 'function'. Those of an agent are in its "
            "configuration.",
            field=f"{field}.type",
        )
    return {
        "name": tool.function.name,
        "description": tool.function.description or "",
        "input_schema": tool.function.parameters or {"type": "object"},
    }


def _choice(body: CreateCompletion) -> str | JsonObject | None:
    match body.tool_choice:
        case {"type": "function", "function": {"name": str(name)}}:
            return {"name": name}
        case None | "required":
            return body.tool_choice
        case "auto" | "none":
            # Front ends send them also without tools of their own.
            return body.tool_choice if body.tools else None
        case _:
            raise InvalidInput(
                "tool_choice must be 'auto', 'none', 'required' or a function by its name.", field="tool_choice"
            )


def _schema(form: ResponseFormat | None) -> JsonObject | None:
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "object"}
    schema = None if form.json_schema is None else form.json_schema.json_schema
    if schema is None:
        raise InvalidInput("response_format.json_schema.schema is missing.", field="response_format.json_schema.schema")
    return schema


def _blocks(content: Any, field: str, *, may_lack: bool) -> Iterator[ContentBlock]:
    """Yield the content of a message without blank texts; that of assistants and tools may be none."""
    if isinstance(content, str):
        if content.strip():
            yield text_block(content)
    elif isinstance(content, list):
        for at, part in enumerate(content):
            yield from _part(part, f"{field}.{at}")
    elif content is not None or not may_lack:
        raise InvalidInput(f"{field} must be a text or a list of parts.", field=field)


def _part(part: Any, field: str) -> Iterator[ContentBlock]:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            # Front ends send empty parts beside images.
            if text.strip():
                yield text_block(text)
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            yield {"type": "image", "source": _source(url, f"{field}.image_url.url")}
        case {"type": "file", "file": {"file_data": str(data)}}:
            yield {"type": "document", "source": _source(data, f"{field}.file.file_data")}
        case {"type": "file", "file": {"file_id": str(file_id)}}:
            yield {"type": "document", "source": {"type": "file", "file_id": file_id}}
        case _:
            raise InvalidInput(
                f"{field} must be a text, an image_url, or a file with file_data or a file_id.", field=field
            )


def _source(url: str, field: str) -> JsonObject:
    if not url.startswith(_DATA_URL):
        return {"type": "url", "url": url}
    kind, comma, data = url.removeprefix(_DATA_URL).partition(",")
    media_type, *parameters = kind.split(";")
    if not comma or parameters[-1:] != ["base64"]:
        raise InvalidInput(f"{field} must be a data URL in base64.", field=field)
    return {"type": "base64", "media_type": media_type, "data": data}
