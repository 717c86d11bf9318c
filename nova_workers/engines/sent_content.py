"""A person's messages and tool results in the form that the Messages API takes, also where it reads a transcript.

The API refuses what the ledger may hold: blank text, results after other content, and in the result of a failed call
anything but text. So results come first, and what else a failed call returned follows them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nova_workers.contracts.content import ContentBlock, text_block

_NO_OUTPUT = "(no output)"
_FOLLOWS = "[What else this call returned follows the results.]"


@dataclass(frozen=True, slots=True)
class SentBlock:
    """A block of a request, and where it is from.

    Attributes:
        at: Index of the block in the message; None for one that was added.
        part: Index of the part of the tool result that it was.
        parts: Of a tool result: indices of its parts in the message; None for those that were added.
    """

    block: ContentBlock
    at: int | None
    part: int | None = None
    parts: tuple[int | None, ...] = ()


def sent_blocks(content: Sequence[ContentBlock]) -> list[SentBlock]:
    """Return the blocks of a ``user`` message as they are sent; none if it has nothing visible."""
    results: list[SentBlock] = []
    hoisted: list[SentBlock] = []
    others: list[SentBlock] = []
    for at, block in enumerate(content):
        if block.get("type") == "tool_result":
            result, rest = _result(block, at)
            results.append(result)
            hoisted += rest
        elif not _is_blank(block):
            others.append(SentBlock(block, at))
    return [*results, *hoisted, *others]


def without_blank_text(content: Sequence[ContentBlock]) -> list[ContentBlock]:
    """Return the blocks without text that has no visible character."""
    return [block for block in content if not _is_blank(block)]


def _result(block: ContentBlock, at: int) -> tuple[SentBlock, list[SentBlock]]:
    given = block.get("content") or ()
    parts: Sequence[ContentBlock] = (text_block(given),) if isinstance(given, str) else given
    seen = [(index, part) for index, part in enumerate(parts) if not _is_blank(part)]
    kept = [(index, part) for index, part in seen if not block.get("is_error") or part.get("type") == "text"]
    if kept and len(kept) == len(parts):
        return SentBlock(block, at, parts=tuple(index for index, _ in kept)), []
    rest = list(_hoisted(block, at, seen))
    inner: list[tuple[int | None, ContentBlock]] = [*kept]
    if rest:
        inner.append((None, text_block(_FOLLOWS)))
    elif not inner:
        inner.append((None, text_block(_NO_OUTPUT)))
    sent = {**block, "content": [part for _, part in inner]}
    return SentBlock(sent, at, parts=tuple(index for index, _ in inner)), rest


def _hoisted(block: ContentBlock, at: int, parts: Sequence[tuple[int, ContentBlock]]) -> Iterator[SentBlock]:
    """Yield the content besides text of a failed call's result, below a heading."""
    others = [(index, part) for index, part in parts if part.get("type") != "text"] if block.get("is_error") else []
    if others:
        yield SentBlock(text_block(f"[Of the failed call {block.get('tool_use_id')}:]"), None)
    for index, part in others:
        yield SentBlock(part, at, part=index)


def _is_blank(block: ContentBlock) -> bool:
    return block.get("type") == "text" and not str(block.get("text", "")).strip()
