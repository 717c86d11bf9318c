"""The program's transcripts: conversion of the ledger's messages, and selection of the program's entries to store.

The program resumes from a file with one entry per line. Messages of the ledger become entries with only the fields that
the program needs (2.1.330; the tests resume from such a file in every way that the engine does). So after a crash a
turn can continue exactly where the journal ends, in any worker, and a missing session loses the program's own notes but
nothing of the conversation.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from nova_workers.contracts.content import ContentBlock, JsonObject, Message, portable, storable_json
from nova_workers.engines.claude_agent.names import own_name, program_name
from nova_workers.engines.sent_content import sent_blocks, without_blank_text

_STORED_TYPES = frozenset({"user", "assistant", "attachment", "system"})
"""Kinds of entries that form a conversation. Others are the program's notes on requests, queues and costs."""
_REPLACEMENTS = "content-replacement"
_COMPACTED = "compact_boundary"
_NO_USAGE = {"input_tokens": 0, "output_tokens": 0}


def entries_of(
    messages: Iterable[Message], *, session_id: str, cwd: str, model: str, parent: str | None = None
) -> list[JsonObject]:
    """Return messages as entries.

    Args:
        messages: Oldest first; each tool call has its result.
        session_id: The session that they belong to.
        cwd: Where the program will run.
        model: Named as the author of assistant messages.
        parent: The entry that the first follows.
    """
    entries: list[JsonObject] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        content = _sent(message)
        if not content:
            continue
        body: JsonObject = {"role": role, "content": content}
        if role == "assistant":
            body |= {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "model": model, "usage": _NO_USAGE}
            body |= {"stop_reason": "end_turn", "stop_sequence": None}
        entry_id = str(uuid.uuid4())
        entries.append(
            {
                "type": role,
                "uuid": entry_id,
                "parentUuid": parent,
                "sessionId": session_id,
                "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "isSidechain": False,
                "userType": "external",
                "cwd": cwd,
                "message": body,
            }
        )
        parent = entry_id
    return entries


def _sent(message: Message) -> list[ContentBlock]:
    """Return the blocks that the program may send as they are."""
    if message.role == "assistant":
        return [_to_program_names(block) for block in without_blank_text(portable(message.content))]
    return [sent.block for sent in sent_blocks(message.content)]


def is_entry(stored: object) -> bool:
    """Return whether a stored value has the form of an entry. One in another is of no session that can be resumed."""
    if not isinstance(stored, dict):
        return False
    entry: JsonObject = stored
    return isinstance(entry.get("type"), str) and isinstance(entry.get("uuid"), str | None)


def rebound(entries: Sequence[JsonObject], session_id: str) -> list[JsonObject]:
    """Return stored entries as those of another session: the program looks only at entries that bear its own id."""
    return [{**entry, "sessionId": session_id} for entry in entries]


def kept(entries: Iterable[JsonObject]) -> tuple[tuple[JsonObject, ...], bool]:
    """Select the entries to store.

    Returns:
    The entries, each once; and whether they are complete without their parents, since the program compacted the
    conversation.
    """
    by_id: dict[str, JsonObject] = {}
    for entry in entries:
        kind = entry.get("type")
        if kind in _STORED_TYPES and entry.get("uuid") and not entry.get("isSidechain"):
            by_id[entry["uuid"]] = entry
        elif kind == _REPLACEMENTS:
            by_id[_REPLACEMENTS] = entry
    stored = list(by_id.values())
    compactions = [at for at, entry in enumerate(stored) if entry.get("subtype") == _COMPACTED]
    return tuple(stored[compactions[-1] :] if compactions else stored), bool(compactions)


def fingerprint(messages: Iterable[Message]) -> str:
    """Return a hash that is equal for equal conversations, before and after storage in the ledger."""
    digest = hashlib.sha256()
    for message in messages:
        canonical = [message.role, storable_json(list(message.content))]
        digest.update(json.dumps(canonical, sort_keys=True, separators=(",", ":")).encode())
    return digest.hexdigest()


def to_own_names(block: ContentBlock) -> ContentBlock:
    """Return the block with our name of the tool that it calls."""
    return {**block, "name": own_name(block["name"])} if block.get("type") == "tool_use" else block


def _to_program_names(block: ContentBlock) -> ContentBlock:
    return {**block, "name": program_name(block["name"])} if block.get("type") == "tool_use" else block
