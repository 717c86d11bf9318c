"""The conversation of an agent: read from the messages of its thread, and described for its parent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from nova_workers.base.vocabulary import HistoryDetail, HistoryEntryType
from nova_workers.contracts.content import ContentBlock, text_of
from nova_workers.contracts.orchestration import HistoryEntry
from nova_workers.domain.orchestrations.sql.history import latest_messages
from nova_workers.ledger.database import Connection, Row

_MAX_MESSAGES = 1_000
"""Newest messages of a thread that are read: more than a description contains."""
_MAX_CHARS = 60_000
"""Longest description. Of a longer conversation the newest part is described."""
_MAX_ENTRY_CHARS = 6_000
_SUMMARY_TYPES: tuple[HistoryEntryType, ...] = ("TEXT", "USER_MESSAGE", "TOOL_CALL")


async def load_history(
    connection: Connection, tenant_id: str, thread_id: str, *, limit: int = _MAX_MESSAGES
) -> list[HistoryEntry]:
    """Return the entries of an agent's newest messages, oldest first.

    Args:
        connection: The ledger.
        tenant_id: Whose thread.
        thread_id: The agent's.
        limit: Messages that are read at most. A message has an entry for each of its blocks.
    """
    return history_entries(await latest_messages(connection, tenant_id, thread_id, limit=limit))


def history_entries(messages: Iterable[Row | Mapping[str, Any]]) -> list[HistoryEntry]:
    """Return the entries of messages, in their order. A result has the name of its call's tool."""
    names: dict[str, str] = {}
    return [entry for message in messages for entry in _entries(message, names)]


def selected(entries: Iterable[HistoryEntry], detail: HistoryDetail) -> list[HistoryEntry]:
    """Return the entries that a level of detail contains: all, or texts and calls without their parameters."""
    if detail == "full":
        return list(entries)
    kept = (entry for entry in entries if entry.type in _SUMMARY_TYPES)
    return [
        HistoryEntry(entry.type, entry.run_id, entry.at, entry.text, entry.call_id, entry.tool_name) for entry in kept
    ]


def describe_history(entries: Sequence[HistoryEntry], detail: HistoryDetail) -> str:
    """Return a conversation as text, oldest first; of one that is too long the newest part."""
    lines: list[str] = []
    left = _MAX_CHARS
    shown = selected(entries, detail)
    for entry in reversed(shown):
        line = _line(entry)
        left -= len(line) + 2
        if left < 0:
            lines.append(f"[{len(shown) - len(lines)} earlier entries omitted]")
            break
        lines.append(line)
    return "\n\n".join(reversed(lines)) or "It has said nothing yet."


def _entries(message: Row | Mapping[str, Any], names: dict[str, str]) -> Iterator[HistoryEntry]:
    run_id, at = message["run_id"], message["created_at"]
    for block in message["content"]:
        match block.get("type"):
            case "text":
                kind: HistoryEntryType = "TEXT" if message["role"] == "assistant" else "USER_MESSAGE"
                yield HistoryEntry(kind, run_id, at, block["text"])
            case "thinking":
                yield HistoryEntry("THINKING", run_id, at, block["thinking"])
            case "tool_use":
                names[block["id"]] = block["name"]
                yield HistoryEntry(
                    "TOOL_CALL", run_id, at, call_id=block["id"], tool_name=block["name"], params=block["input"]
                )
            case "tool_result":
                yield _result(block, run_id, at, names)
            case _:
                # Images, documents and the provider's own blocks have no text.
                pass


def _result(block: ContentBlock, run_id: str | None, at: Any, names: dict[str, str]) -> HistoryEntry:
    content: Any = block.get("content") or ()
    text = content if isinstance(content, str) else text_of(tuple(content))
    call_id = block["tool_use_id"]
    failed = block.get("is_error") is True
    return HistoryEntry("TOOL_RESULT", run_id, at, text, call_id, names.get(call_id), failed=failed)


def _line(entry: HistoryEntry) -> str:
    match entry.type:
        case "TOOL_CALL":
            given = "" if entry.params is None else f" {_cut(orjson.dumps(entry.params).decode())}"
            return f"[TOOL_CALL] {entry.tool_name}{given}"
        case "TOOL_RESULT":
            failed = " failed" if entry.failed else ""
            return f"[TOOL_RESULT] {entry.tool_name or 'a tool'}{failed}: {_cut(entry.text)}"
        case _:
            return f"[{entry.type}] {_cut(entry.text)}"


def _cut(text: str) -> str:
    if len(text) <= _MAX_ENTRY_CHARS:
        return text
    return f"{text[:_MAX_ENTRY_CHARS]}… [{len(text) - _MAX_ENTRY_CHARS} more characters]"
