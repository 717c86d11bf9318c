"""Markdown that is still being written, block by block.

A block that another one follows no longer changes: it is rendered once and appended. Only the last block is rendered
again, and code in an open fence is not even that: its new characters are appended.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt

from nova_workers.console.formulas import read_formulas

_FENCES = ("```", "~~~")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")

_blocks = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("inline")
_blocks.use(read_formulas)
"""Finds blocks only: what is inside of them is rendered later."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What a longer text changes.

    Attributes:
        anew: Whether everything shown before is void.
        closed: Blocks that no longer change, as Markdown.
        open: The last block, as Markdown; None if only `code` grew.
        code: Characters that an open block of code got.
    """

    anew: bool
    closed: tuple[str, ...]
    open: str | None
    code: str = ""


class GrowingMarkdown:
    """Compares each text with the one before."""

    def __init__(self) -> None:
        self._text = ""
        self._closed = 0
        self._fence = False

    def grow(self, text: str) -> Growth | None:
        """Return the growth since the last call; None if nothing changed."""
        if text == self._text:
            return None
        anew = not text.startswith(self._text)
        if anew:
            self._closed, self._fence = 0, False
        before = self._text[self._closed :]
        if self._fence and not anew and not _closes_fence(before, text[self._closed :]):
            grown = text[len(self._text) :]
            self._text = text
            return Growth(anew=False, closed=(), open=None, code=grown)
        self._text = text
        closed, rest = _split(text[self._closed :])
        self._closed = len(text) - len(rest)
        self._fence = _is_open_fence(rest)
        return Growth(anew, tuple(closed), rest)


def code_of(block: str) -> str | None:
    """Return the code of a fence that is open at the end of its block; None for any other block."""
    return block.partition("\n")[2] if _is_open_fence(block) else None


def _split(text: str) -> tuple[list[str], str]:
    """Return the blocks of a text that no longer change, and its last block."""
    starts = [token.map[0] for token in _blocks.parse(text) if token.level == 0 and token.map and token.nesting >= 0]
    if len(starts) < 2:
        return [], text
    lines = _LINES.findall(text)
    bounds = [0, *starts[1:], len(lines)]
    blocks = ["".join(lines[low:high]) for low, high in pairwise(bounds)]
    return blocks[:-1], blocks[-1]


def _is_open_fence(block: str) -> bool:
    """Return whether a block is a fence at the margin whose first line is whole and whose end is not written yet."""
    return block.startswith(_FENCES) and "\n" in block and _end_of_fence(block) is None


def _closes_fence(before: str, block: str) -> bool:
    # The line that was being written may become the closing one.
    start = before.rfind("\n") + 1
    mark = _mark(block)
    return any(line.strip().startswith(mark) for line in block[start:].splitlines())


def _end_of_fence(block: str) -> int | None:
    mark = _mark(block)
    lines = block.splitlines()[1:]
    ends = (at for at, line in enumerate(lines) if line.strip().startswith(mark) and not line.strip().strip(mark[0]))
    return next(ends, None)


def _mark(block: str) -> str:
    head = block.split("\n", 1)[0]
    return head[: len(head) - len(head.lstrip(head[0]))]
