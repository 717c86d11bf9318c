"""Messages and content blocks, in the vocabulary of the Messages API, as the ledger keeps them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nova_workers.base.vocabulary import Role

__all__ = [
    "MAX_STORED_DEPTH",
    "ORIGIN",
    "ContentBlock",
    "JsonObject",
    "Message",
    "Role",
    "is_storable_integer",
    "media_tokens",
    "portable",
    "storable",
    "storable_json",
    "text_block",
    "text_of",
]

JsonObject = dict[str, Any]
"""A JSON object. Values are JSON values."""

ContentBlock = JsonObject
"""One content block: ``{"type": "text" | "thinking" | "redacted_thinking" | "tool_use" | "tool_result" |
"image" | "document", …}``, stored and replayed byte for byte."""

ORIGIN = "origin"
"""Key of what only the provider that made a block understands, such as encrypted reasoning; see `portable`."""

MAX_STORED_DEPTH = 200
"""Limit of nested arrays and objects in a stored JSON value. The encoder takes 254 levels, including the row's."""

_LEAST_INTEGER, _GREATEST_INTEGER = -(2**63), 2**64 - 1
_DECIMAL_BITS = 10_000
_TOO_DEEP = "[nested too deep]"

_MEDIA_TOKENS = {"image": 1_600, "document": 3_000}
"""Estimates: an image scaled to the size that models read; two pages of a document."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. Tool results travel in a ``user`` message, as the API has it."""

    role: Role
    content: tuple[ContentBlock, ...]


def text_block(text: str) -> ContentBlock:
    """Return a text block, with its keys in the order of `storable_json`."""
    return {"text": text, "type": "text"}


def text_of(content: tuple[ContentBlock, ...]) -> str:
    """Return the joined text blocks of a message, without its other blocks."""
    return "".join(str(block.get("text", "")) for block in content if block.get("type") == "text")


def portable(content: Iterable[ContentBlock]) -> list[ContentBlock]:
    """Return the blocks that any other provider accepts: without thinking that has an origin, and without origins."""
    return [
        {key: value for key, value in block.items() if key != ORIGIN} if ORIGIN in block else block
        for block in content
        if not (ORIGIN in block and block.get("type") == "thinking")
    ]


def media_tokens(block: ContentBlock) -> int | None:
    """Return an estimate of a model's tokens for an image or document; None for any other block.

    The length of the base64 data is no measure of them.
    """
    match block:
        case {"type": "image" | "document" as kind, "source": {"type": "base64"}}:
            return _MEDIA_TOKENS[kind]
        case _:
            return None


def storable(text: str) -> str:
    """Return text that every store accepts.

    Tools may return any text. Postgres and JSON in UTF-8 reject a lone surrogate, and Postgres rejects NUL: both become
    U+FFFD. A pair of surrogates becomes its character.
    """
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\ufffd").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def storable_json(value: Any, *, max_depth: int = MAX_STORED_DEPTH) -> Any:
    """Return a JSON value that every store accepts and returns unchanged.

    Every string is `storable`. An integer over 64 bits becomes its digits as text, a non-finite number becomes None,
    and an array or object below `max_depth` levels becomes the text ``[nested too deep]``. The keys of objects have the
    order in which Postgres returns them, the shorter first: the turn's requests are to begin as those of the next turn,
    which reads the same blocks from the ledger, and the order of a call's arguments is part of what a provider caches.
    """
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict | list | tuple):
        return _storable_container(value, max_depth)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not is_storable_integer(value):
        # Python refuses to format very long integers in decimal.
        return str(value) if value.bit_length() < _DECIMAL_BITS else hex(value)
    return value


def is_storable_integer(value: int) -> bool:
    """Return whether an integer fits in 64 bits, with or without a sign."""
    return _LEAST_INTEGER <= value <= _GREATEST_INTEGER


def _storable_container(value: dict[Any, Any] | list[Any] | tuple[Any, ...], max_depth: int) -> Any:
    if max_depth <= 0:
        return _TOO_DEEP
    if isinstance(value, dict):
        kept = {storable(str(key)): storable_json(item, max_depth=max_depth - 1) for key, item in value.items()}
        return {key: kept[key] for key in sorted(kept, key=_stored_order)}
    return [storable_json(item, max_depth=max_depth - 1) for item in value]


def _stored_order(key: str) -> tuple[int, str]:
    # UTF-8 sorts as its characters do.
    return len(key.encode()), key
