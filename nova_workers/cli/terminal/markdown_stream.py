"""Streams Markdown to a terminal as lines that no longer change.

Returned lines are never redrawn, so answers of any length end up whole in the scrollback, and notes, typed lines and a
resized terminal do no harm. In exchange the last lines wait until further text cannot change them.
"""

from rich.console import Console

from nova_workers.cli.terminal.markdown import SafeMarkdown

_HELD_LINES = 2
"""Rendered lines at the end of a block that more text may still change: the last wraps, the one before may join it."""

_RENDER_EVERY_CHARS = 40
"""Rendering costs time in proportion to the open block, so not for every token."""

_FENCES = ("```", "~~~")


class MarkdownStream:
    """Turns pieces of Markdown into finished lines of a terminal.

    A block ends at a blank line that no indented line follows, outside a fence. The lines of an open block are
    returned except its last ones; a table only whole, since each row may change the width of its columns.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._block = ""
        self._given = 0
        self._unrendered = 0
        self._any_block = False

    @property
    def tail(self) -> str:
        """The line that is being written."""
        return self._block.rpartition("\n")[2]

    def feed(self, text: str) -> str:
        """Take a piece; return what is final, as whole lines for the terminal."""
        self._block += text
        self._unrendered += len(text)
        done = ""
        while (end := _end_of_block(self._block)) is not None:
            block, self._block = self._block[:end], self._block[end:]
            done += self._rest_of(block)
            self._unrendered = len(self._block)
        if self._unrendered >= _RENDER_EVERY_CHARS and not self._block.lstrip().startswith("|"):
            self._unrendered = 0
            lines = self._rendered(self._block)
            done += self._give(lines[: max(0, len(lines) - _HELD_LINES)])
        return done

    def close(self) -> str:
        """Return all buffered text. An open fence continues in the next feed."""
        fence = _open_fence(self._block)
        done = self._rest_of(self._block)
        self._block = f"{fence}\n" if fence else ""
        self._unrendered = 0
        return done

    def _rest_of(self, block: str) -> str:
        done = self._give(self._rendered(block)) if block.strip() else ""
        self._any_block = self._any_block or self._given > 0
        self._given = 0
        return done

    def _give(self, lines: list[str]) -> str:
        new = lines[self._given :]
        gap = "\n" if new and not self._given and self._any_block else ""
        self._given = max(self._given, len(lines))
        return gap + "".join(f"{line}\n" for line in new)

    def _rendered(self, block: str) -> list[str]:
        with self._console.capture() as captured:
            self._console.print(SafeMarkdown(block))
        # Rich pads lines with blanks to the edge; copied text would contain them.
        lines = [line.rstrip(" ") for line in captured.get().split("\n")]
        while lines and not lines[-1].strip():
            lines.pop()
        while lines and not lines[0].strip():
            lines.pop(0)
        return lines


def _end_of_block(text: str) -> int | None:
    """Return where the first block ends and another has begun; None if that is not known yet."""
    at, blank, fence = 0, False, ""
    for line in text.splitlines(keepends=True):
        if blank and not fence and line.strip() and not line[0].isspace() and text[:at].strip():
            return at
        fence = _after(fence, line)
        blank = not line.strip()
        at += len(line)
    return None


def _open_fence(text: str) -> str:
    fence = ""
    for line in text.splitlines():
        fence = _after(fence, line)
    return fence


def _after(fence: str, line: str) -> str:
    """Return the fence that is open after a line; empty for none."""
    bare = line.strip()
    if fence:
        mark = fence[:3]
        return "" if bare.startswith(mark) and not bare.strip(mark[0]) else fence
    return bare if bare.startswith(_FENCES) else ""
