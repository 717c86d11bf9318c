"""The input of a request: what is said now, what was said before, and what answers calls and questions."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.contracts.http.wire import PastMessage
from nova_workers.contracts.waits import ToolResult

from .parts import GOES_ON

_DATA_URL: Final = "data:"
_SYSTEM: Final = frozenset({"system", "developer"})
_BEGINS: Final = "(The conversation begins with the assistant.)"
_SUMMARY: Final = "(Summary of the conversation before:)"


class Approval(NamedTuple):
    """The decision about a call of a tool that needs permission."""

    request_id: str
    approve: bool
    reason: str | None
    field: str


@dataclass(slots=True)
class Given:
    """What the input of a request has.

    Attributes:
        message: What the user says now.
        instructions: What instructs the agent, beside the request's own instructions.
        results: What the client's functions returned since the agent last spoke.
        history: What was said before, without `message` and `results`: roles and contents.
        last_id: The id of the last item that the assistant said, if the client has it; of a call, the call's.
    """

    message: list[ContentBlock] = field(default_factory=list[ContentBlock])
    instructions: list[str] = field(default_factory=list[str])
    results: list[ToolResult] = field(default_factory=list[ToolResult])
    approvals: list[Approval] = field(default_factory=list[Approval])
    history: list[tuple[str, list[ContentBlock]]] = field(default_factory=list[tuple[str, list[ContentBlock]]])
    last_id: str | None = None

    @property
    def text(self) -> str:
        """The text of the message."""
        return "\n\n".join(str(block["text"]) for block in self.message if block.get("type") == "text")

    def past(self) -> list[PastMessage]:
        """Return the history, which begins with a message of the user, as a model needs it."""
        said = self.history if not self.history or self.history[0][0] == "user" else [_OPENING, *self.history]
        return [PastMessage.model_construct(role=role, content=content) for role, content in said]

    def without_results(self) -> Given:
        """Return the same with the results as history: no run waits for them."""
        if not self.results:
            return self
        results = [_result_block(result) for result in self.results]
        history = [*self.history, ("user", results)]
        message = self.message or [text_block(GOES_ON)]
        return Given(message, self.instructions, [], self.approvals, history)


def sealed_summary(text: str) -> str:
    """Return a summary in the form in which a client sends it back."""
    return base64.urlsafe_b64encode(text.encode()).decode()


def _summary(sealed: str, place: str) -> ContentBlock:
    try:
        text = base64.b64decode(sealed, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise InvalidInput(f"{place} is no compaction of this service.", field=f"{place}.encrypted_content") from error
    return text_block(f"{_SUMMARY}\n\n{text}")


_OPENING: Final[tuple[str, list[ContentBlock]]] = ("user", [text_block(_BEGINS)])


def given_input(items: str | Sequence[JsonObject] | None) -> Given:
    """Return the parts of an input.

    Raises:
        InvalidInput: A part is of a kind that a fleet has no place for; names the field.
    """
    given = Given()
    for at, item in enumerate([{"role": "user", "content": items}] if isinstance(items, str) else items or ()):
        _take(given, item, f"input.{at}")
    if given.history:
        _check_calls(given)
    return given


def _check_calls(given: Given) -> None:
    """Refuse a history in which a call has no output, or an output no call."""
    blocks = [block for _, content in given.history for block in content]
    calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
    outputs = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
    outputs += [result.tool_call_id for result in given.results]
    if lacking := next((call_id for call_id in calls if call_id not in outputs), None):
        raise InvalidInput(f"input has no function_call_output of the call {lacking!r:.80}.", field="input")
    if orphan := next((call_id for call_id in outputs if call_id not in calls), None):
        raise InvalidInput(f"input has no function_call of the output {orphan!r:.80}.", field="input")


def referenced(items: str | Sequence[JsonObject] | None) -> list[str]:
    """Return the ids of items that an input only names."""
    if not items or isinstance(items, str):
        return []
    return [str(item.get("id")) for item in items if item.get("type") == "item_reference"]


def _take(given: Given, item: JsonObject, place: str) -> None:
    match item:
        case {"type": "function_call_output", "call_id": str(call_id), "output": output}:
            given.results.append(_result(call_id, output, place))
        case {"type": "mcp_approval_response", "approval_request_id": str(request_id), "approve": bool(approve)}:
            reason: Any = item.get("reason")
            given.approvals.append(Approval(request_id, approve, reason if isinstance(reason, str) else None, place))
        case {"type": "mcp_approval_request", "id": str()}:
            _close(given)
        case {"type": "function_call", "call_id": str(), "name": str(), "arguments": str()}:
            _say(given, [_call(item, place)], item["call_id"])
        case {"role": str(role), "content": content} if role in _SYSTEM:
            given.instructions.extend(str(block.get("text", "")) for block in _blocks(content, f"{place}.content"))
        case {"role": "user", "content": content}:
            given.message.extend(_blocks(content, f"{place}.content"))
        case {"role": "assistant", "content": content}:
            _say(given, _texts(content, f"{place}.content"), item.get("id"))
        case {"type": "compaction", "encrypted_content": str(sealed)}:
            given.message.append(_summary(sealed, place))
        case {"type": "reasoning"}:
            # Only its provider reads the thinking of a model.
            pass
        case _:
            raise InvalidInput(
                f"{place} is neither a message of a user, system, developer or assistant nor a function_call, a "
                "function_call_output, an item_reference, reasoning, an mcp_approval_request or an "
                "mcp_approval_response.",
                field=place,
            )


def _say(given: Given, blocks: list[ContentBlock], item_id: Any) -> None:
    """Take what the assistant said: what is before it is history."""
    if not blocks:
        return
    given.last_id = item_id if isinstance(item_id, str) else None
    _close(given)
    # The agent spoke behind them: they were taken.
    given.approvals = []
    if given.history and given.history[-1][0] == "assistant":
        given.history[-1][1].extend(blocks)
    else:
        given.history.append(("assistant", blocks))


def _close(given: Given) -> None:
    """Make history of what was said and returned, as something of the agent's follows it."""
    results = [_result_block(result) for result in given.results]
    if results or given.message:
        given.history.append(("user", [*results, *given.message]))
    given.results, given.message = [], []


def _result_block(result: ToolResult) -> ContentBlock:
    text = result.content
    content = ([text_block(text)] if text else []) if isinstance(text, str) else list(text)
    return {"type": "tool_result", "tool_use_id": result.tool_call_id, "content": content}


def _result(call_id: str, output: Any, place: str) -> ToolResult:
    content = output if isinstance(output, str) else _blocks(output, f"{place}.output")
    try:
        return ToolResult(tool_call_id=call_id, content=content)
    except ValidationError as error:
        first = error.errors()[0]
        wrong = "call_id" if first["loc"][:1] == ("tool_call_id",) else "output"
        raise InvalidInput(f"{place}.{wrong}: {first['msg']}.", field=f"{place}.{wrong}") from error


def _call(item: JsonObject, place: str) -> ContentBlock:
    try:
        arguments: Any = orjson.loads(item["arguments"] or "{}")
    except orjson.JSONDecodeError:
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidInput(f"{place}.arguments must be a JSON object in a string.", field=f"{place}.arguments")
    return {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": arguments}


def _texts(content: Any, place: str) -> list[ContentBlock]:
    """Return the text of a message of the assistant."""
    parts: list[Any] = content if isinstance(content, list) else [content]
    texts: list[ContentBlock] = []
    for at, part in enumerate(parts):
        match part:
            case str(text) | {"text": str(text)} | {"refusal": str(text)}:
                texts.extend([text_block(text)] if text else [])
            case _:
                raise InvalidInput(f"{place}.{at} must be an output_text or a refusal.", field=f"{place}.{at}")
    return texts


def _blocks(content: Any, place: str) -> list[ContentBlock]:
    if isinstance(content, str):
        return [text_block(content)]
    parts: Sequence[Any] = content if isinstance(content, list) else [content]
    return [_block(part, f"{place}.{at}") for at, part in enumerate(parts)]


def _block(part: Any, place: str) -> ContentBlock:
    match part:
        case {"type": "input_text" | "text" | "output_text", "text": str(text)}:
            return text_block(text)
        case {"type": "input_image", "image_url": str(url)}:
            return {"type": "image", "source": _source(url, f"{place}.image_url")}
        case {"type": "input_file", "file_data": str(data)}:
            return _document(part, _source(data, f"{place}.file_data"))
        case {"type": "input_file", "file_url": str(url)}:
            return _document(part, {"type": "url", "url": url})
        case {"type": "input_image" | "input_file" as kind, "file_id": str(file_id)}:
            source: JsonObject = {"type": "file", "file_id": file_id}
            return {"type": "image", "source": source} if kind == "input_image" else _document(part, source)
        case _:
            raise InvalidInput(
                f"{place} must be an input_text, an input_image with an image_url, or an input_file with file_data or "
                "a file_url.",
                field=place,
            )


def _document(part: JsonObject, source: JsonObject) -> ContentBlock:
    name: Any = part.get("filename")
    return {"type": "document", "source": source, **({"title": name} if isinstance(name, str) and name else {})}


def _source(url: str, place: str) -> JsonObject:
    if not url.startswith(_DATA_URL):
        return {"type": "url", "url": url}
    kind, comma, data = url.removeprefix(_DATA_URL).partition(",")
    media_type, _, encoding = kind.partition(";")
    if not comma or encoding != "base64":
        raise InvalidInput(f"{place} must be a data URL in base64.", field=place)
    if media_type.startswith("text/"):
        return {"type": "text", "media_type": "text/plain", "data": _plain(data, place)}
    return {"type": "base64", "media_type": media_type, "data": data}


def _plain(data: str, place: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InvalidInput(f"{place} must be text in UTF-8, in base64.", field=place) from error
