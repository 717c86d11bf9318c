"""Markdown of agents in the terminal: formatted, and unable to drive it."""

from collections.abc import Iterator
from importlib import import_module

from rich.console import Console, ConsoleOptions
from rich.segment import Segment

from nova_workers.cli.terminal.output import printable


class SafeMarkdown:
    """A renderable, without control characters.

    They are removed from the source, so that the layout is right, and again from the result, since Markdown can spell a
    character that is not in its source (``&#27;``). Links show their address, which a terminal's own hyperlink would
    hide.

    Its parser is imported with the first text: 60 ms of CPU, in which a command that has none yet sends its request.
    """

    def __init__(self, text: str) -> None:
        self._markdown = import_module("rich.markdown").Markdown(printable(text), hyperlinks=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._markdown, options):
            if not segment.control:
                yield Segment(printable(segment.text), segment.style)
