"""Content that a provider refused: how it is recognised, and the notes that replace it.

The ledger keeps refused content unchanged, and stores its key with the turn in which it was refused. Every later
request has a note in its place, until a person brings it back.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nova_workers.contracts.content import ContentBlock, Message, storable, storable_json, text_block

REPLACEABLE = frozenset({"image", "document", "search_result", "thinking", "redacted_thinking"})
"""Kinds of blocks that a note may replace, besides what is in the result of a tool: no other block refers to them, and
they contain no text of a person."""

_MAX_REASON_CHARS = 300
_NOTE = "[Left out, since the model provider refused it: "
_NOTE_FOR_TOOLS = "[Tools that the model does not get: "


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Content that later requests omit.

    Attributes:
        block: The block; of a whole result, the ``tool_result``.
        note: Replaces it.
        call_id: The call whose result it is or is in; None for a block of a message.
        part: Its index in the result; None for the whole result.
    """

    block: ContentBlock
    note: str
    call_id: str | None = None
    part: int | None = None

    @property
    def key(self) -> str:
        """Identifies the content in its conversation. Equal images in results are different content."""
        return fingerprint_of(self.block) if self.call_id is None else _key_of(self.call_id, self.part)


def fingerprint_of(block: ContentBlock) -> str:
    """Return a hash that is equal for equal blocks, before and after storage in the ledger."""
    canonical = json.dumps(storable_json(block), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def note_for(block: ContentBlock, reason: str, about: str = "") -> str:
    """Return the note that replaces the block. `about` says what it was, if its kind does not."""
    return f"{_NOTE}{block.get('type')}. {about}{storable(reason)[:_MAX_REASON_CHARS]}]"


def note_for_tools(tools: Sequence[str]) -> str:
    """Return the note about tools that were left out, each with its reason."""
    return f"{_NOTE_FOR_TOOLS}{storable('; '.join(tools))}]"


def about_tools(note: str) -> bool:
    """Return whether a note is about tools, and in the place of no content."""
    return note.startswith(_NOTE_FOR_TOOLS)


def kind_of(note: str) -> str:
    """Return the kind of the block that a note replaces; ``tool`` for one about tools."""
    if about_tools(note):
        return "tool"
    return note.removeprefix(_NOTE).partition(".")[0]


def is_note(block: ContentBlock) -> bool:
    """Return whether the block is a note in the place of another."""
    return block.get("type") == "text" and str(block.get("text", "")).startswith(_NOTE)


def with_notes(messages: Sequence[Message], refused: Mapping[str, str]) -> tuple[Message, ...]:
    """Return messages with a note instead of each refused block.

    Args:
        refused: Notes by the key of what they replace.
    """
    if not refused:
        return tuple(messages)
    return tuple(
        Message(message.role, tuple(_noted(block, refused) for block in message.content)) for message in messages
    )


def _noted(block: ContentBlock, refused: Mapping[str, str]) -> ContentBlock:
    if block.get("type") == "tool_result":
        return _noted_result(block, refused)
    if block.get("type") not in REPLACEABLE:
        return block
    note = refused.get(fingerprint_of(block))
    return block if note is None else text_block(note)


def _noted_result(block: ContentBlock, refused: Mapping[str, str]) -> ContentBlock:
    call_id, inner = str(block.get("tool_use_id")), block.get("content")
    whole = refused.get(_key_of(call_id, None))
    if whole is not None:
        return {**block, "content": [text_block(whole)]}
    if not isinstance(inner, list | tuple):
        return block
    notes = [refused.get(_key_of(call_id, part)) for part in range(len(inner))]
    return {
        **block,
        "content": [
            _noted(part, refused) if note is None else text_block(note) for part, note in zip(inner, notes, strict=True)
        ],
    }


def _key_of(call_id: str, part: int | None) -> str:
    return f"call:{call_id}" if part is None else f"call:{call_id}.{part}"
