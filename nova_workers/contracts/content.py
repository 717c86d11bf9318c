"""Messages and content blocks, in the vocabulary of the Messages API, as the ledger keeps them."""

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["ContentBlock", "JsonObject", "Message", "Role", "text_block", "text_of"]

JsonObject = dict[str, Any]
"""A JSON object. Values are JSON values."""

ContentBlock = JsonObject
"""One content block: ``{"type": "text" | "thinking" | "redacted_thinking" | "tool_use" | "tool_result" |
"image" | "document", …}``, stored and replayed byte for byte."""

Role = Literal["user", "assistant", "system"]


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
