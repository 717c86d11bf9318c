"""Messages of the protocol, and what they are to the fleet."""

from __future__ import annotations

import base64
from typing import Any, Final

import orjson
from a2a.types import Message, Part, Role
from a2a.utils.errors import ContentTypeNotSupportedError
from google.protobuf.json_format import MessageToDict
from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.media import MEDIA_TYPES
from nova_workers.contracts.bodies import is_one_line
from nova_workers.contracts.content import ContentBlock, text_block
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate
from nova_workers.contracts.waits import AskApproval, RunAnswer, WaitView

from ..questions import open_questions

METADATA: Final = "a2a"
MESSAGE_ID: Final = "message_id"
"""In the metadata of a run, under `METADATA`: the id by which its client knows the message."""

_YES: Final = frozenset({"yes", "y", "true", "approve", "approved", "allow"})
_NO: Final = frozenset({"no", "n", "false", "reject", "rejected", "deny", "denied"})
_TEXTS: Final = frozenset({"application/json", "application/xml", "application/yaml"})


def run_of(message: Message, agent_id: str) -> StatelessRunCreate:
    """Return a message as one to an agent, or to the thread that is its context.

    Raises:
        InvalidInput: It has no content, is not a user's, or is beyond a bound; names the field.
        ContentTypeNotSupportedError: A part is of a media type that no agent reads.
    """
    context = message.context_id
    if context and not context.startswith("thr_"):
        raise InvalidInput(
            f"message.contextId: {context!r} is no context of this agent. Leave it out: the task names a new one.",
            field="message.contextId",
        )
    known = {MESSAGE_ID: message.message_id} if is_one_line(message.message_id) else {}
    addressee = {"thread_id": context} if context else {"agent_id": agent_id}
    try:
        return StatelessRunCreate.model_validate(
            {"message": blocks_of(message), "metadata": {METADATA: known}, **addressee}
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{field}: {first['msg']}.", field=field) from error


def blocks_of(message: Message) -> list[ContentBlock]:
    """Return the content of a message.

    Raises:
        InvalidInput: It has none, or is not a user's.
        ContentTypeNotSupportedError: A part is of a media type that no agent reads.
    """
    if message.role != Role.ROLE_USER:
        raise InvalidInput("message.role: clients send messages of the role ROLE_USER.", field="message.role")
    blocks = [_block(part, f"message.parts.{at}") for at, part in enumerate(message.parts)]
    found = [block for block in blocks if block != text_block("")]
    if not found:
        raise InvalidInput("message.parts: the message has no content.", field="message.parts")
    return found


def answer_of(message: Message, run: RunView, wait_id: str | None, *, by: str) -> RunAnswer:
    """Return a message as the answer to what a run asks.

    Args:
        message: Its text is the answer. A part with data, ``{"waitId": …, "answer": …}`` or ``{"waitId": …, "approve":
            …}``, names the question of a task that asks several.
        run: The run as it is now.
        wait_id: The question that this message answered before, if it did.
        by: Who answers, for the record.

    Raises:
        InvalidInput: It is no answer, or does not say to which question.
    """
    data = next((each for each in (_data(part) for part in message.parts) if "waitId" in each), {})
    text = "\n".join(part.text for part in message.parts if part.WhichOneof("content") == "text").strip()
    named = wait_id or data.get("waitId")
    waits = open_questions(run)
    if named is None:
        if len(waits) != 1:
            raise InvalidInput(
                f'message.parts: the task asks {len(waits)} questions. Send a part with the data {{"waitId": …, '
                '"answer": …}, as the status has them.',
                field="message.parts",
            )
        named = waits[0].id
    given: dict[str, Any] = {"wait_id": named, "by": by}
    wait = next((each for each in waits if each.id == named), None)
    if "approve" in data:
        given |= {"approve": data["approve"]} | ({"text": text} if text else {})
    elif "answer" in data:
        given["text"] = data["answer"]
    else:
        given |= _spoken(text, wait)
    try:
        return RunAnswer.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInput(f"message.parts: {first['msg']}.", field="message.parts") from error


def data_part(value: Any) -> Part:
    """Return a JSON value as a part."""
    part = Part(media_type="application/json")
    _set_value(part.data, value)
    return part


def _set_value(target: Any, value: Any) -> None:
    match value:
        case None:
            target.null_value = 0
        case bool():
            target.bool_value = value
        case int() | float():
            target.number_value = value
        case str():
            target.string_value = value
        case dict():
            target.struct_value.SetInParent()
            for name, each in value.items():
                _set_value(target.struct_value.fields[name], each)
        case _:
            target.list_value.SetInParent()
            for each in value:
                _set_value(target.list_value.values.add(), each)


def _spoken(text: str, wait: WaitView | None) -> dict[str, Any]:
    if wait is None or not isinstance(wait.request, AskApproval):
        return {"text": text or None}
    word, _, reason = text.partition(" ")
    decision = word.strip(" ,.;:!").lower()
    if decision not in _YES | _NO:
        raise InvalidInput(
            "message.parts: the task asks whether a call is permitted. Begin the answer with yes or no.",
            field="message.parts",
        )
    return {"approve": decision in _YES} | ({"text": reason.strip()} if reason.strip() else {})


def _data(part: Part) -> dict[str, Any]:
    if part.WhichOneof("content") != "data":
        return {}
    # A value of the protocol is any JSON, whatever the SDK's types say.
    value: Any = MessageToDict(part.data)
    return value if isinstance(value, dict) else {}


def _block(part: Part, field: str) -> ContentBlock:
    kind = part.media_type.partition(";")[0].strip().lower()
    match part.WhichOneof("content"):
        case "text":
            return text_block(part.text)
        case "data":
            return text_block(orjson.dumps(MessageToDict(part.data)).decode())
        case "raw" if kind in MEDIA_TYPES:
            source = {"type": "base64", "media_type": kind, "data": base64.b64encode(part.raw).decode()}
            return {"type": _type_of(kind), "source": source}
        case "raw" if kind.startswith("text/") or kind in _TEXTS:
            return _document(part.raw, field)
        case "url" if kind in MEDIA_TYPES and part.url.startswith(("https://", "http://")):
            return {"type": _type_of(kind), "source": {"type": "url", "url": part.url}}
        case "raw" | "url":
            message = f"{field}: agents read no {kind or 'parts without a mediaType'!r}."
            raise ContentTypeNotSupportedError(message, {"field": field})
        case _:
            raise InvalidInput(f"{field}: the part has no text, raw, url or data.", field=field)


def _document(raw: bytes, field: str) -> ContentBlock:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{field}.raw: the text is not UTF-8.", field=f"{field}.raw") from error
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}


def _type_of(media_type: str) -> str:
    return "image" if media_type.startswith("image/") else "document"
