"""What the ledger's blocks are to a provider: text, images, documents."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nova_workers.contracts.content import ORIGIN, ContentBlock, JsonObject, Message, text_block
from nova_workers.engines.openai.catalog import Target
from nova_workers.engines.openai.provider import OpenAIProvider

_NO_OUTPUT = "(no output)"


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True)
class Media:
    """An image or a document.

    Attributes:
        url: Its address, or its content as a data URL; empty for a file.
        file_id: A file that was uploaded to the provider.
        name: A file name.
    """

    kind: Literal["image", "document"]
    url: str
    file_id: str | None = None
    name: str = ""


def parts_of(content: Iterable[ContentBlock], provider: OpenAIProvider) -> Iterator[Text | Media]:
    """Return the parts of a person's message or of a tool's result. What the provider does not take becomes a note."""
    for number, block in enumerate(content):
        match block:
            case {"type": "text", "text": str() as text}:
                if text.strip():
                    yield Text(text)
            case {"type": "document", "source": {"type": "text", "data": str() as text}}:
                yield Text(_titled(block, text))
            case {"type": "document", "source": {"type": "content", "content": given}}:
                yield from parts_of((text_block(given),) if isinstance(given, str) else given, provider)
            case {"type": "image" | "document" as kind, "source": {**source}}:
                yield _media(kind, source, block, provider, number)
            case {"type": "search_result"}:
                texts = (part.get("text", "") for part in block.get("content") or ())
                yield Text(f"{block.get('title', '')} ({block.get('source', '')})\n" + "\n".join(texts))
            case {"type": "thinking" | "redacted_thinking" | "tool_use" | "tool_result"}:
                continue
            case _:
                yield Text(f"[Left out: {block.get('type')}, which this model's provider does not take.]")


def result_text(block: ContentBlock, provider: OpenAIProvider) -> tuple[str, list[Media]]:
    """Return a tool result as text, and its images and documents. An error says that it is one."""
    given = block.get("content") or ()
    content: Iterable[ContentBlock] = ({"type": "text", "text": given},) if isinstance(given, str) else given
    texts: list[str] = []
    media: list[Media] = []
    for part in parts_of(content, provider):
        if isinstance(part, Text):
            texts.append(part.text)
        else:
            media.append(part)
    text = "\n".join(texts) or ("" if media else _NO_OUTPUT)
    return (f"Error: {text}" if block.get("is_error") else text), media


def splits(message: Message) -> tuple[list[ContentBlock], list[ContentBlock]]:
    """Return the tool results of a user's message, and its other blocks."""
    results = [block for block in message.content if block.get("type") == "tool_result"]
    return results, [block for block in message.content if block.get("type") != "tool_result"]


def origin_of(target: Target, **made: Any) -> JsonObject:
    """Return the origin of a block: what the provider needs to understand it again."""
    return {"provider": target.provider.name, "model": target.model, **made}


def foreign_thinking(block: ContentBlock, target: Target) -> bool:
    """Return whether the block is thinking that this model at this provider did not make."""
    if block.get("type") not in ("thinking", "redacted_thinking"):
        return False
    origin = block.get(ORIGIN)
    return not (
        isinstance(origin, Mapping)
        and origin.get("provider") == target.provider.name
        and origin.get("model") == target.model
    )


def _media(
    kind: Literal["image", "document"],
    source: Mapping[str, Any],
    block: ContentBlock,
    provider: OpenAIProvider,
    number: int,
) -> Text | Media:
    if not (provider.images if kind == "image" else provider.documents):
        return Text(f"[Left out: {kind}, since the model's provider {provider.name!r} takes none.]")
    name = str(block.get("title") or f"document-{number + 1}.pdf") if kind == "document" else ""
    match source:
        case {"type": "base64", "media_type": str() as media_type, "data": str() as data}:
            return Media(kind, f"data:{media_type};base64,{data}", name=name)
        case {"type": "url", "url": str() as url}:
            return Media(kind, url, name=name)
        case {"type": "file", "file_id": str() as file_id}:
            return Media(kind, "", file_id=file_id, name=name)
        case _:
            return Text(f"[Left out: {kind} of an unknown form.]")


def _titled(block: ContentBlock, text: str) -> str:
    title = block.get("title")
    return f"{title}\n\n{text}" if title else text
