"""Blocks of a conversation that a provider refused: how they are recognised, and the notes that replace them.

The ledger keeps a refused block unchanged, and stores its fingerprint with the turn in which it was refused. Every
later request has a note in the block's place.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence

from nova_workers.contracts.content import ContentBlock, Message, storable, storable_json, text_block

__all__ = ["REPLACEABLE", "fingerprint_of", "kind_of", "note_for", "with_notes"]

REPLACEABLE = frozenset({"image", "document", "search_result"})
"""Kinds of blocks that a note may replace: no other block refers to them, and they contain no text of a person."""

_MAX_REASON_CHARS = 300
_NOTE = "[Left out, since the model provider refused it: "


def fingerprint_of(block: ContentBlock) -> str:
    """Return a hash that is equal for equal blocks, before and after storage in the ledger."""
    canonical = json.dumps(storable_json(block), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def note_for(block: ContentBlock, reason: str) -> str:
    """Return the note that replaces the block."""
    return f"{_NOTE}{block.get('type')}. {storable(reason)[:_MAX_REASON_CHARS]}]"


def kind_of(note: str) -> str:
    """Return the kind of the block that a note replaces."""
    return note.removeprefix(_NOTE).partition(".")[0]


def with_notes(messages: Sequence[Message], refused: Mapping[str, str]) -> tuple[Message, ...]:
    """Return messages with a note instead of each refused block.

    Args:
        messages: The messages.
        refused: Notes by block fingerprint.
    """
    if not refused:
        return tuple(messages)
    return tuple(
        Message(message.role, tuple(_noted(block, refused) for block in message.content)) for message in messages
    )


def _noted(block: ContentBlock, refused: Mapping[str, str]) -> ContentBlock:
    inner = block.get("content")
    if block.get("type") == "tool_result" and isinstance(inner, list | tuple):
        return {**block, "content": [_noted(part, refused) for part in inner]}
    if block.get("type") not in REPLACEABLE:
        return block
    note = refused.get(fingerprint_of(block))
    return block if note is None else text_block(note)
