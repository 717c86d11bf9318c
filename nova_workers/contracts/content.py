"""Messages and content blocks, in the vocabulary of the Messages API, as the ledger keeps them."""

from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "ContentBlock",
    "JsonObject",
    "Message",
    "Role",
    "media_tokens",
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

Role = Literal["user", "assistant", "system"]

_MEDIA_TOKENS = {"image": 1_600, "document": 3_000}
"""A picture of the size that models look at; two pages."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. Tool results travel in a ``user`` message, as the API has it."""

    role: Role
    content: tuple[ContentBlock, ...]


def text_block(text: str) -> ContentBlock:
    """Return a text block."""
    return {"type": "text", "text": text}


def text_of(content: tuple[ContentBlock, ...]) -> str:
    """Return the text blocks of a message, joined; other blocks are left out."""
    return "".join(str(block.get("text", "")) for block in content if block.get("type") == "text")


def media_tokens(block: ContentBlock) -> int | None:
    """Return about how many tokens a picture or document has for a model; None for a block that is read as text.

    The length of its base64 says nothing of them.
    """
    match block:
        case {"type": "image" | "document" as kind, "source": {"type": "base64"}}:
            return _MEDIA_TOKENS[kind]
        case _:
            return None


def storable(text: str) -> str:
    """Return text that every store takes.

    Tools return what they like. Neither Postgres nor JSON in UTF-8 takes a lone surrogate, and Postgres takes no NUL:
    both become U+FFFD. Two halves of one character that stand side by side become that character.
    """
    return text.replace("\x00", "\ufffd").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def storable_json(value: Any) -> Any:
    """Return a JSON value whose every string is `storable`."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(key): storable_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable_json(item) for item in value]
    return value
