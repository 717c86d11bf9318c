"""What Rich draws of a command's output. Importing it takes 17 ms of CPU, so `Output` does when something is drawn."""

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from nova_workers.cli.terminal.table_layout import Heading, lay_out

_GAP = 2
"""Cells between two columns of a table on a terminal."""


class Renderer:
    """Draws on the two streams of a command. Texts have no control characters.

    Attributes:
        console: The rich console of stdout.
    """

    def __init__(self, stdout: TextIO, stderr: TextIO, *, tty: bool) -> None:
        self._stdout = stdout
        self._tty = tty
        # A pipe has no width, so nothing is cut.
        self.console = Console(file=stdout, highlight=False, width=None if tty else 100_000)
        self._notes = Console(file=stderr, highlight=False, soft_wrap=True)

    def text(self, text: str, style: str) -> None:
        """Draw a line of the answer."""
        self.console.print(Text(text, style=style), soft_wrap=True)

    def note(self, text: str, style: str) -> None:
        """Draw a line on stderr."""
        self._notes.print(Text(text, style=style))

    def render(self, renderable: RenderableType) -> None:
        """Draw a renderable. A pipe gets lines without the blanks that fill them up."""
        if self._tty:
            self.console.print(renderable)
            return
        with self.console.capture() as captured:
            self.console.print(renderable)
        self._stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())

    def table(self, columns: Sequence[Heading], cells: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """Draw a table, and return the headings of the columns that did not fit a terminal."""
        if self._tty:
            return self._fitted(columns, cells)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column if isinstance(column, str) else column[0], no_wrap=True)
        for row in cells:
            table.add_row(*map(Text, row))
        self.render(table)
        return ()

    def facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Draw names and values, one pair a line."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in pairs:
            grid.add_row(Text(name), Text(text))
        self.render(grid)

    def _fitted(self, columns: Sequence[Heading], cells: Sequence[Sequence[str]]) -> tuple[str, ...]:
        layout = lay_out(columns, cells, width=self.console.width, gap=_GAP)
        # Rich adds one blank between columns.
        table = Table(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0), header_style="bold"
        )
        shown = range(len(columns)) if layout is None else layout.widths
        for at in shown:
            heading, kind = column if isinstance(column := columns[at], tuple) else (column, "whole")
            if layout is None or kind == "fold":
                # If not even the fixed columns fit, all columns fold.
                width = None if layout is None else layout.widths[at]
                table.add_column(heading, overflow="fold", width=width)
            else:
                table.add_column(heading, overflow="ellipsis", no_wrap=True, width=layout.widths[at])
        for row in cells:
            table.add_row(*(Text(row[at]) for at in shown))
        self.console.print(table)
        return () if layout is None else layout.left_out
