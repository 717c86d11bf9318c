"""What was said before in a chat: its digest, by which its thread is found, and its form for an import."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.contracts.http.wire import PastMessage

from .chat_bodies import Said

_CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_BEGINNING: Final = "(The conversation begins with a message of yours.)"


class ChatDigest:
    """The digest of a chat up to a message.

    What instructs the agent is left out: front ends put the time into it. So are spaces around texts, which they trim.
    """

    def __init__(self, scope: Sequence[str | JsonObject | None], said: Iterable[Said] = ()) -> None:
        """Begin.

        Args:
            scope: What a chat belongs to: chats of different scopes have different digests.
            said: The first messages.
        """
        self._hash = hashlib.sha256(orjson.dumps(list(scope)))
        self.add(said)

    def add(self, said: Iterable[Said]) -> None:
        """Go on with messages."""
        for message in said:
            self._add(message.role, message.content, [call["id"] for call in message.calls], message.call_id)

    def with_answer(self, text: str) -> str:
        """Return the digest of the chat with an answer of the agent."""
        answered = self._hash.copy()
        answered.update(_line("assistant", [text_block(text)] if text.strip() else [], [], ""))
        return answered.hexdigest()

    def digest(self) -> str:
        """Return the digest."""
        return self._hash.hexdigest()

    def _add(self, role: str, content: Sequence[ContentBlock], calls: Sequence[str], call_id: str) -> None:
        self._hash.update(_line(role, content, calls, call_id))


def past_of(said: Sequence[Said]) -> list[PastMessage]:
    """Return a chat in the form in which conversations are imported, without what no model takes."""
    answered = _answered(said)
    past: list[PastMessage] = []
    results: list[ContentBlock] = []
    for message in said:
        if message.role == "tool":
            call_id = answered.get((message.at, message.call_id))
            if call_id is not None:
                results.append({"type": "tool_result", "tool_use_id": call_id, "content": message.content})
            continue
        # What the assistant said is text; front ends put what its tools made into it.
        said_now = [block for block in message.content if message.role == "user" or block.get("type") == "text"]
        content = [*results, *said_now] if message.role == "user" else said_now
        if results and message.role == "assistant":
            past.append(PastMessage(role="user", content=results))
        results = []
        calls = {call["id"]: call for call in message.calls if (message.at, call["id"]) in answered}
        content += [_use(message.at, call, answered) for call in calls.values()]
        if content and not past and message.role == "assistant":
            past.append(PastMessage(role="user", content=_BEGINNING))
        if content:
            past.append(PastMessage(role=message.role, content=content))
    if results:
        past.append(PastMessage(role="user", content=results))
    return past


def _answered(said: Sequence[Said]) -> dict[tuple[int, str], str]:
    """Return ids for the calls that have results in the messages after them, by the place of each message and the id.

    Ids of chats may come twice, and have characters that model providers refuse.
    """
    ids: dict[tuple[int, str], str] = {}
    used: set[str] = set()
    for at, message in enumerate(said):
        results = _results_behind(said, at) if message.calls else {}
        for call in message.calls:
            if call["id"] not in results or (message.at, call["id"]) in ids:
                continue
            is_fit = _CALL_ID.fullmatch(call["id"]) is not None and call["id"] not in used
            call_id = call["id"] if is_fit else f"call_{message.at}_{len(used)}"
            used.add(call_id)
            ids[message.at, call["id"]] = ids[results[call["id"]], call["id"]] = call_id
    return ids


def _results_behind(said: Sequence[Said], at: int) -> dict[str, int]:
    """Return the places of the first results of calls in the messages right behind one, by the ids of the calls."""
    results: dict[str, int] = {}
    for place in range(at + 1, len(said)):
        later = said[place]
        if later.role != "tool":
            break
        results.setdefault(later.call_id, later.at)
    return results


def _use(at: int, call: JsonObject, ids: dict[tuple[int, str], str]) -> ContentBlock:
    try:
        arguments: Any = orjson.loads(call["arguments"] or "{}")
    except orjson.JSONDecodeError:
        arguments = None
    return {
        "type": "tool_use",
        "id": ids[at, call["id"]],
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", call["name"])[:128] or "tool",
        "input": arguments if isinstance(arguments, dict) else {"arguments": call["arguments"]},
    }


def _line(role: str, content: Sequence[ContentBlock], calls: Sequence[str], call_id: str) -> bytes:
    blocks: list[object] = []
    for block in content:
        match (blocks, block):
            case ([*_, str(before)], {"type": "text", "text": str(text)}):
                blocks[-1] = f"{before}\n{_trimmed(text)}"
            case (_, {"type": "text", "text": str(text)}):
                blocks.append(_trimmed(text))
            case _:
                blocks.append(block)
    return orjson.dumps([role, blocks, list(calls), call_id], option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def _trimmed(text: str) -> str:
    return text.replace("\r\n", "\n").strip()
