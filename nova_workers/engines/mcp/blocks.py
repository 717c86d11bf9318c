"""Converts between content of MCP results and content blocks of the ledger. Nothing is dropped without a note.

A model reads text, images of a few types, and PDFs. Everything else that a server may return (audio, links, other
files, structured content) becomes text, or a note that says what it was.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcp.types import ContentBlock as McpContent

from nova_workers.base.media import MEDIA_TYPES, media_type_of
from nova_workers.contracts.content import ContentBlock, storable_json, text_block

_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml", "application/javascript")
_TEXT_ENDINGS = ("+json", "+xml")
_WRAPPER = "result"
"""The key in which servers put a structured result that is no object."""
_NO_OUTPUT = "(no output)"
_NO_TEXT = "The tool failed without a message."


def from_mcp(result: CallToolResult) -> tuple[ContentBlock, ...]:
    """Return a result as content blocks: its content in order, then its structured content if no text has it."""
    blocks = tuple(_block(content) for content in result.content)
    structured = result.structured_content
    if structured is None or _is_in(structured, [content.text for content in _texts(result.content)]):
        return blocks
    # Not all that a server may send can be written as it is: lone surrogates, NaN.
    return (*blocks, text_block(json.dumps(storable_json(structured), ensure_ascii=False)))


def to_mcp(block: ContentBlock) -> McpContent:
    """Return a block as content of a tool's result; for a kind that MCP does not have, a text with what can be told."""
    match block:
        case {"type": "text", "text": text}:
            content: McpContent = TextContent(text=text)
        case {"type": "image", "source": {"type": "base64", "data": data, "media_type": media_type}}:
            content = ImageContent(data=data, mime_type=media_type)
        case {"type": "document", "source": {"type": "base64", "data": data, "media_type": media_type}}:
            content = _document(data, media_type)
        case {"type": "document", "source": {"type": "text", "data": data, "media_type": media_type}}:
            content = _document(base64.b64encode(data.encode()).decode(), media_type)
        case {"type": "image" | "document" as kind, "source": {"type": "url", "url": url}}:
            content = TextContent(text=f"[{kind} at {url}]")
        case {"type": "search_result"}:
            texts = (str(part.get("text", "")) for part in block.get("content") or ())
            content = TextContent(text="\n".join((f"{block.get('title', '')} ({block.get('source', '')})", *texts)))
        case _:
            content = TextContent(text=f"[Left out: {block.get('type')}, which the program does not take.]")
    return content


def to_mcp_result(content: Iterable[ContentBlock], *, failed: bool) -> CallToolResult:
    """Return a call's outcome as an MCP result.

    Programs show the model only the text of a failed result, some only its first block, and providers refuse anything
    else there. So the text of a failure is one block, and a failure with images is a result that says that it failed.
    """
    # A blank text is refused by providers, to which a program sends it as it is.
    parts = [part for part in map(to_mcp, content) if not isinstance(part, TextContent) or part.text.strip()]
    if not failed:
        return CallToolResult(content=parts or [TextContent(text=_NO_OUTPUT)])
    text = "\n".join(part.text for part in _texts(parts)) or _NO_TEXT
    rest = [part for part in parts if not isinstance(part, TextContent)]
    if not rest:
        return CallToolResult(content=[TextContent(text=text)], is_error=True)
    return CallToolResult(content=[TextContent(text=f"The call failed: {text}"), *rest])


def _block(content: McpContent) -> ContentBlock:
    match content:
        case ImageContent():
            return _file(content.data, content.mime_type, "Image")
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            return _file(resource.blob, resource.mime_type, "File", str(resource.uri))
        case _:
            return text_block(_text(content))


def _text(content: McpContent) -> str:
    match content:
        case TextContent():
            return content.text
        case AudioContent():
            named = _named("Audio", None, content.mime_type, content.data)
            return f"[Left out: {named}. Models read no audio.]"
        case ResourceLink():
            return _link(content)
        case EmbeddedResource(resource=TextResourceContents() as resource):
            kind = f" ({resource.mime_type})" if resource.mime_type else ""
            return f"[{resource.uri}{kind}]\n{resource.text}"
        case _:
            return f"[Left out: {content.type}, which is of an unknown form.]"


def _file(data: str, declared: str | None, word: str, uri: str | None = None) -> ContentBlock:
    """Return a file as an image, a PDF or a text; for any other, a note."""
    # Some servers send a data URL, or base64 in lines.
    encoded = "".join(data.rpartition("base64,")[2].split())
    # Servers declare wrong types, and a provider refuses an image that is not what the request says.
    media_type = media_type_of(encoded) or _plain_type(declared)
    if media_type in MEDIA_TYPES:
        source = {"type": "base64", "media_type": media_type, "data": encoded}
        return {"type": "image" if media_type.startswith("image/") else "document", "source": source}
    named = _named(word, uri, declared, encoded)
    text = _decoded(encoded) if word == "File" and _may_be_text(media_type) else None
    if text is not None:
        return text_block(f"[{named}]\n{text}")
    return text_block(f"[Left out: {named}. Models read {', '.join(MEDIA_TYPES)}.]")


def _plain_type(declared: str | None) -> str:
    plain = (declared or "").partition(";")[0].strip().lower()
    return "image/jpeg" if plain == "image/jpg" else plain


def _may_be_text(media_type: str) -> bool:
    return not media_type or media_type.startswith(_TEXT_TYPES) or media_type.endswith(_TEXT_ENDINGS)


def _decoded(encoded: str) -> str | None:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return None if "\x00" in text else text


def _named(word: str, uri: str | None, declared: str | None, encoded: str) -> str:
    size_bytes = len(encoded) * 3 // 4
    about = f"{declared or 'of no declared type'}, about {size_bytes:,} bytes"
    return f"{word} {uri} ({about})" if uri else f"{word} ({about})"


def _link(link: ResourceLink) -> str:
    about = [link.mime_type, None if link.size is None else f"{link.size:,} bytes"]
    known = ", ".join(part for part in about if part)
    described = f". {link.description}" if link.description else ""
    return f"[Link to {link.title or link.name}: {link.uri}{f' ({known})' if known else ''}{described}]"


def _document(data: str, media_type: str) -> McpContent:
    contents = BlobResourceContents(uri="nova:document", mime_type=media_type, blob=data)
    return EmbeddedResource(resource=contents)


def _texts(content: Sequence[McpContent]) -> Iterator[TextContent]:
    return (part for part in content if isinstance(part, TextContent))


def _is_in(structured: Any, texts: Sequence[str]) -> bool:
    """Return whether the texts have the structured content already, as the protocol recommends to servers."""
    if any(_says(text, structured) for text in texts):
        return True
    if not isinstance(structured, dict) or set(structured) != {_WRAPPER}:
        return False
    inner: Any = structured[_WRAPPER]
    items: list[Any] = inner if isinstance(inner, list) else [inner]
    # Servers send one text for each item of a list.
    return any(_says(text, inner) for text in texts) or (
        len(items) == len(texts) and all(_says(text, item) for text, item in zip(texts, items, strict=True))
    )


def _says(text: str, value: Any) -> bool:
    if isinstance(value, str) and text == value:
        return True
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False
