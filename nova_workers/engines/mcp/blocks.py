"""Converts content blocks of the ledger to content of MCP results."""

import base64
from typing import Any

from mcp.types import BlobResourceContents, EmbeddedResource, ImageContent, TextContent
from mcp.types import ContentBlock as McpContent

from nova_workers.contracts.content import ContentBlock

__all__ = ["to_mcp"]


def to_mcp(block: ContentBlock) -> McpContent:
    """Return a block as content of a tool's result; for a kind that MCP does not have, a note with the kind."""
    source: dict[str, Any] = block.get("source") or {}
    match block.get("type"), source.get("type"):
        case "text", _:
            return TextContent(text=block["text"])
        case "image", "base64":
            return ImageContent(data=source["data"], mime_type=source["media_type"])
        case "document", "base64":
            return _document(source["data"], source["media_type"])
        case "document", "text":
            return _document(base64.b64encode(source["data"].encode()).decode(), source["media_type"])
        case kind, _:
            return TextContent(text=f"[{kind}]")


def _document(data: str, media_type: str) -> McpContent:
    contents = BlobResourceContents(uri="nova:document", mime_type=media_type, blob=data)
    return EmbeddedResource(resource=contents)
