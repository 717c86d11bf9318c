"""Requests of the protocol, and what they are to the fleet."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple

import orjson
from ag_ui.core import (
    AssistantMessage,
    ContentPart,
    DataSource,
    DeveloperMessage,
    DocumentPart,
    ImagePart,
    Message,
    ResumeEntry,
    RunAgentInput,
    SystemMessage,
    TextPart,
    ToolMessage,
    UrlSource,
    UserMessage,
)
from pydantic import BaseModel, Field, ValidationError, model_validator

from nova_workers.base.errors import InvalidInput
from nova_workers.base.media import MEDIA_TYPES
from nova_workers.contracts.bodies import is_one_line
from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.contracts.http.thread_states import ThreadStateReplace
from nova_workers.contracts.http.wire import OnBusy, PastMessage, StatelessRunCreate
from nova_workers.contracts.waits import AskApproval, AskUser, RunAnswer, ToolResult

from ..items import QuestionItem
from .parts import Asked, item_of
from .stamps import version_of

_ROLES: Final = frozenset({"developer", "system", "assistant", "user", "tool", "activity", "reasoning"})
_PARTS: Final = frozenset({"text", "image", "audio", "video", "document"})
_SOURCES: Final = frozenset({"data", "url", "file"})
_MOST_CHARS: Final = 512
_FIELDS: Final = {"message": "messages", "client_tools": "tools", "instructions": "context", "agent_id": "agent_id"}

_BEGINNING: Final = "[The conversation begins.]"
"""Stands before an agent's greeting: models take conversations that begin with a person."""

Id = Annotated[str, Field(min_length=1, max_length=_MOST_CHARS)]


class AgentInput(RunAgentInput):
    """The body. What the protocol does not describe is passed over; a field that it describes has its form."""

    thread_id: Id
    run_id: Id
    messages: Annotated[list[Message], Field(max_length=10_000)]

    @model_validator(mode="before")
    @classmethod
    def _without_unknown_kinds(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
            return value
        known = [_with_known_parts(each) for each in value["messages"] if not _is_unknown(each, "role", _ROLES)]
        return {**value, "messages": known}


class SentMessage(BaseModel):
    """What a run of the protocol is asked: with the same id, another one is another request."""

    thread_id: str
    message: Any
    resume: Any


class Given(NamedTuple):
    """What is new in a request.

    Attributes:
        message: What the person says.
        results: Results of calls that the client executed.
        answers: Answers to interrupts.
        left_out: Places of parts that no agent can use.
    """

    message: list[ContentBlock]
    results: list[tuple[Asked, ToolResult]]
    answers: list[tuple[Asked, ResumeEntry]]
    left_out: list[str]


def sent_message(body: AgentInput) -> SentMessage:
    """Return the part of a request that makes it another one: its messages have what came of it when it is repeated."""
    said = next((message for message in reversed(body.messages) if isinstance(message, UserMessage)), None)
    return SentMessage(
        thread_id=body.thread_id,
        message=None if said is None else said.model_dump(mode="json", include={"content"}),
        resume=None if body.resume is None else [entry.model_dump(mode="json") for entry in body.resume],
    )


def given_input(body: AgentInput) -> Given:
    """Return the new parts of a request: what follows the agent's last message, and the answers to interrupts.

    Raises:
        InvalidInput: A result or an answer has another form; names the field.
    """
    given = Given([], [], [], [])
    for at, message in _new_messages(body.messages):
        match message:
            case UserMessage():
                given.message.extend(_blocks(message.content, f"messages.{at}.content", given.left_out))
            case ToolMessage() if item_of(message.id) is None:
                asked = Asked.by_call(message.tool_call_id)
                if asked is not None:
                    given.results.append((asked, _result(asked, message, f"messages.{at}", given.left_out)))
            case _:
                pass
    for entry in body.resume or ():
        asked = Asked.by_interrupt(entry.interrupt_id)
        if asked is not None:
            given.answers.append((asked, entry))
    if given.answers and _last(body.messages, AssistantMessage) < 0:
        # What led to the interrupts, from a client that leaves out what the agent said.
        given.message.clear()
    return given


def past_of(messages: Sequence[Message]) -> list[PastMessage]:
    """Return the texts of a conversation that took place elsewhere: all up to the agent's last message."""
    past: list[PastMessage] = []
    for message in messages[: _last(messages, AssistantMessage) + 1]:
        if not isinstance(message, UserMessage | AssistantMessage):
            continue
        content = _blocks(message.content or "", "", [])
        if content and not past and isinstance(message, AssistantMessage):
            past.append(PastMessage(role="user", content=_BEGINNING))
        if content:
            past.append(PastMessage(role=message.role, content=content))
    return past


def offered_state(body: AgentInput) -> ThreadStateReplace | None:
    """Return the state that a client has, with the version that its messages name; None if it has none.

    Raises:
        InvalidInput: It is beyond the bounds of a state document.
    """
    if not isinstance(body.state, dict) or not body.state:
        return None
    try:
        return ThreadStateReplace(state=body.state, version=version_of(body.messages))
    except ValidationError as error:
        raise InvalidInput(f"state: {error.errors()[0]['msg']}.", field="state") from error


def run_of(body: AgentInput, message: Sequence[ContentBlock], on_busy: OnBusy) -> StatelessRunCreate:
    """Return the message of a request with the options of its run.

    Raises:
        InvalidInput: An option is beyond its bounds; names the field.
    """
    tools = tuple(_tool(tool.name, tool.description, tool.parameters) for tool in body.tools or ())
    options: dict[str, Any] = {"client_tools": tools, "instructions": _instructions(body) or None}
    names = {"thread_id": body.thread_id, "run_id": body.run_id}
    try:
        return StatelessRunCreate(
            message=list(message),
            on_busy=on_busy,
            metadata={"ag_ui": {name: value for name, value in names.items() if is_one_line(value)}},
            **{name: value for name, value in options.items() if value},
        )
    except ValidationError as error:
        first = error.errors()[0]
        # A check of several fields names them itself.
        text = first["msg"].removeprefix("Value error, ")
        place = _text(first["loc"]) or text.partition(":")[0]
        refusal = InvalidInput(f"{place}: {text.removeprefix(f'{place}: ')}.", field=place)
        raise in_terms_of_the_protocol(refusal) from error


def in_terms_of_the_protocol(error: InvalidInput) -> InvalidInput:
    """Return the refusal of a run with the field as the client knows it."""
    field = str(error.fields.get("field", ""))
    name, dot, rest = field.partition(".")
    named = _FIELDS.get(name, name)
    place = f"{named}{dot}{rest.replace('input_schema', 'parameters')}" if name == "client_tools" else named
    return InvalidInput(str(error).replace(field, place, 1) if field else str(error), field=place or "body")


def answer_of(question: QuestionItem, entry: ResumeEntry, field: str, *, by: str) -> RunAnswer | None:
    """Return the answer to a question; None where a question that takes only its options was abandoned.

    Args:
        question: What is answered.
        entry: The answer of the client.
        field: The place of the entry, for refusals.
        by: Who answers, for the record.

    Raises:
        InvalidInput: The payload has another form than the interrupt's schema.
    """
    payload = entry.payload
    if isinstance(question.request, AskApproval):
        match payload:
            case _ if entry.status == "cancelled":
                answer: dict[str, Any] = {"approve": False, "text": "The request was dismissed."}
            case bool() as approved:
                answer = {"approve": approved}
            case {"approved": bool(approved), **rest} if "editedArgs" not in rest:
                reason = rest.get("reason")
                answer = {"approve": approved, **({"text": reason} if reason else {})}
            case _:
                raise InvalidInput(
                    f'{field}.payload must be {{"approved": true}} or {{"approved": false}}, with a "reason" if you '
                    "like. Arguments of a call cannot be changed.",
                    field=f"{field}.payload",
                )
    elif entry.status == "cancelled":
        if question.request.only_options:
            return None
        answer = {"text": "The question was dismissed without an answer."}
    else:
        text = payload.get("answer") if isinstance(payload, dict) else payload
        answer = {"text": text if isinstance(text, str) else None}
    try:
        found = RunAnswer(wait_id=question.id, by=by, **answer)
    except ValidationError as error:
        raise InvalidInput(f"{field}.payload: {error.errors()[0]['msg']}.", field=f"{field}.payload") from error
    if found.text is None and found.approve is None:
        raise InvalidInput(f'{field}.payload must be a text, or {{"answer": "a text"}}.', field=f"{field}.payload")
    if isinstance(question.request, AskUser) and not question.request.takes(found.text or ""):
        options = ", ".join(map(repr, question.request.options))
        raise InvalidInput(f"{field}.payload must be one of the options {options}.", field=f"{field}.payload")
    return found


def _new_messages(messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    """Yield results after the agent's last message, and what a person says after all of these."""
    last = _last(messages, AssistantMessage)
    last_result = max(last, _last(messages, ToolMessage))
    new = [
        (at, message)
        for at, message in enumerate(messages)
        if at > (last_result if isinstance(message, UserMessage) else last)
    ]
    yield from (pair for pair in new if item_of(pair[1].id) is None)
    if new and isinstance(new[-1][1], UserMessage) and item_of(new[-1][1].id) is not None:
        # It was said before, and is said again.
        yield new[-1]


def _last(messages: Sequence[Message], kind: type[Message]) -> int:
    return max((at for at, message in enumerate(messages) if isinstance(message, kind)), default=-1)


def _with_known_parts(message: Any) -> Any:
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    parts = [
        part
        for part in message["content"]
        if not _is_unknown(part, "type", _PARTS)
        and not (isinstance(part, dict) and _is_unknown(part.get("source"), "type", _SOURCES))
    ]
    return {**message, "content": parts}


def _is_unknown(value: Any, name: str, known: frozenset[str]) -> bool:
    return isinstance(value, dict) and isinstance(value.get(name), str) and value[name] not in known


def _blocks(content: str | list[ContentPart], field: str, left_out: list[str]) -> list[ContentBlock]:
    if isinstance(content, str):
        return [text_block(content)] if content else []
    blocks: list[ContentBlock] = []
    for at, part in enumerate(content):
        block = _block(part)
        if block is None:
            left_out.append(f"{field}.{at}")
        elif block != text_block(""):
            blocks.append(block)
    return blocks


def _block(part: ContentPart) -> ContentBlock | None:
    """Return a part as a block; None for one that no model is given."""
    match part:
        case TextPart():
            return text_block(part.text)
        case ImagePart() | DocumentPart():
            source = _source(part)
            return None if source is None else {"type": part.type, "source": source}
        case _:
            return None


def _source(part: ImagePart | DocumentPart) -> JsonObject | None:
    match part.source:
        case UrlSource(value=url) if url.startswith(("https://", "http://")):
            return {"type": "url", "url": url}
        case DataSource(value=data, mime_type=kind) if kind in MEDIA_TYPES and kind.startswith("image/") == (
            part.type == "image"
        ):
            return {"type": "base64", "media_type": kind, "data": data}
        case DataSource(value=data, mime_type=kind) if part.type == "document" and _is_text(kind):
            try:
                return {"type": "text", "media_type": "text/plain", "data": base64.b64decode(data).decode()}
            except (binascii.Error, UnicodeDecodeError):
                return None
        case _:
            return None


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind.partition(";")[0] in {"application/json", "application/xml"}


def _result(asked: Asked, message: ToolMessage, field: str, left_out: list[str]) -> ToolResult:
    content: Any = _blocks(message.content, f"{field}.content", left_out) or ""
    if message.error is not None:
        content = [text_block(message.error), *(content or ())]
    try:
        return ToolResult(tool_call_id=asked.name, content=content, is_error=message.error is not None)
    except ValidationError as error:
        raise InvalidInput(f"{field}.content: {error.errors()[0]['msg']}.", field=f"{field}.content") from error


def _tool(name: str, description: str, parameters: Any) -> JsonObject:
    schema = parameters if isinstance(parameters, dict) and parameters else {"type": "object"}
    return {"name": name, "description": description, "input_schema": {"type": "object", **schema}}


def _instructions(body: AgentInput) -> str:
    sections = [message.content for message in body.messages if isinstance(message, DeveloperMessage | SystemMessage)]
    sections += [f"{context.description}:\n{context.value}" for context in body.context or ()]
    if body.forwarded_props not in (None, {}, []):
        sections.append(f"Properties that the application sent:\n{orjson.dumps(body.forwarded_props).decode()}")
    return "\n\n".join(section for section in sections if section.strip())


def _text(place: Sequence[Any]) -> str:
    return ".".join(map(str, place))
