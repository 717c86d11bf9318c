"""Requests of the Responses API, and what they are to the fleet."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import StatelessRunCreate

from .inputs import Given

_MAX_ITEMS: Final = 10_000
_UNKEPT: Final = {
    "max_tool_calls": "the limits of an agent are in its configuration",
    "prompt": "instructions and input say what the agent is to do",
    "top_logprobs": "agents return no log probabilities",
}
"""Fields that promise what no run keeps, and what is there instead."""


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


class ConversationName(_Read):
    """A conversation by its id."""

    id: str


class CreateResponse(_Read):
    """The body of ``POST /responses``. `model` is the id of an agent."""

    model: str | None = None
    input: str | Annotated[list[JsonObject], Field(max_length=_MAX_ITEMS)] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationName | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: str | JsonObject | None = None
    text: Text | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    stream: StrictBool | None = None
    background: StrictBool | None = None
    store: StrictBool | None = None
    max_tool_calls: int | None = None
    prompt: JsonObject | None = None
    top_logprobs: int | None = None


def refuse_unkept(body: CreateResponse) -> None:
    """Refuse a field that promises what no run keeps.

    Raises:
        InvalidInput: Names the field, and what to do instead.
    """
    for field, instead in _UNKEPT.items():
        if getattr(body, field):
            raise InvalidInput(f"{field} is not possible here: {instead}. Leave it out.", field=field)


def agent_of(body: CreateResponse) -> str:
    """Return the agent that a request names.

    Raises:
        InvalidInput: It names none.
    """
    if not body.model:
        raise InvalidInput("Give the id of an agent as the model; GET /openai/v1/models lists them.", field="model")
    return body.model


def run_of(body: CreateResponse, given: Given, thread_id: str | None, *, is_new: bool) -> StatelessRunCreate:
    """Return the message of a request with the options of its run. One that is new is for a new thread of an agent.

    Raises:
        InvalidInput: It has no message, or an option that no agent has or beyond its bounds; names the field.
    """
    if not given.message:
        raise InvalidInput("input has no message of a user.", field="input")
    tools, choice = _chosen(body)
    options: dict[str, Any] = {
        "client_tools": tuple(_tool(at, tool) for at, tool in tools),
        "instructions": "\n\n".join(part for part in (body.instructions, *given.instructions) if part) or None,
        "temperature": body.temperature,
        "max_output_tokens": body.max_output_tokens,
        "output_schema": _schema(body),
        "tool_choice": choice,
    }
    try:
        return StatelessRunCreate(
            message=given.message,
            thread_id=thread_id,
            agent_id=agent_of(body) if is_new else None,
            # What is not stored is in no list, and is deleted within a day.
            ephemeral=is_new and body.store is False,
            metadata=dict(body.metadata or {}),
            **{name: value for name, value in options.items() if value not in (None, ())},
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        field = place.replace("client_tools", "tools", 1).replace("agent_id", "model", 1)
        raise InvalidInput(f"{field or 'The request'}: {first['msg']}.", field=field or "body") from error


def _tool(at: int, tool: Tool) -> JsonObject:
    if tool.type != "function":
        raise InvalidInput(
            f"tools.{at} has the type {tool.type!r:.80}; a client may bring tools of the type 'function'. Those of an "
            "agent are in its configuration.",
            field=f"tools.{at}.type",
        )
    return {
        "name": tool.name,
        "description": tool.description or "",
        "input_schema": tool.parameters or {"type": "object"},
    }


def _chosen(body: CreateResponse) -> tuple[list[tuple[int, Tool]], str | JsonObject | None]:
    """Return the tools that the model may call, with their places, and how it is to choose."""
    tools = list(enumerate(body.tools or ()))
    match body.tool_choice:
        case {"type": "function", "name": str(name)}:
            return tools, {"name": name}
        case {"type": "allowed_tools", "tools": list(allowed)} as choice:
            names = [each.get("name") if isinstance(each, dict) else None for each in allowed]
            return [each for each in tools if each[1].name in names], _mode(choice.get("mode") or "auto")
        case choice:
            return tools, _mode(choice)


def _mode(choice: Any) -> str | None:
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    raise InvalidInput(
        "tool_choice must be 'auto', 'none', 'required', a function by its name, or allowed_tools.", field="tool_choice"
    )


def _schema(body: CreateResponse) -> JsonObject | None:
    form = None if body.text is None else body.text.format
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return dict(JSON_OBJECT)
    if form.json_schema is None:
        raise InvalidInput("text.format.schema is missing.", field="text.format.schema")
    return form.json_schema


JSON_OBJECT: Final[JsonObject] = {"type": "object"}
"""The schema of an answer in the form ``json_object``."""
