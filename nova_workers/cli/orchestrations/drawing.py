"""The live drawing of a tree on a terminal, which makes way for a question."""

from collections.abc import Generator
from contextlib import contextmanager

from prompt_toolkit.formatted_text import ANSI
from rich.console import Console
from rich.live import Live
from rich.text import Text

from nova_workers.cli.orchestrations.tree_view import TreeView
from nova_workers.cli.terminal.output import printable

REDRAWS_A_SECOND = 4
_PROMPT_LINES = 3
"""Lines below the tree while a question is asked: the prompt, and two that a long answer may take."""


class Drawing:
    """Redraws a tree at the bottom of a terminal; `write` puts lines above it."""

    def __init__(self, console: Console, view: TreeView) -> None:
        self._console = console
        self._view = view
        self._live: Live | None = None

    @contextmanager
    def shown(self) -> Generator[None]:
        """Draw while the block runs. The last drawing stays on the terminal."""
        self._start()
        try:
            yield
        finally:
            self._stop(erase=False)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Erase the drawing, and draw it again after the block."""
        self._stop(erase=True)
        try:
            yield
        finally:
            self._start()

    def write(self, text: str, style: str = "yellow") -> None:
        """Write a line above the drawing."""
        self._console.print(Text(printable(text), style=style))

    def prompt(self, line: str) -> ANSI:
        """Return the prompt of a question, below the tree as it is now: as much of it as the terminal has lines for."""
        with self._console.capture() as captured:
            self._console.print(self._view.render())
        lines = captured.get().splitlines()
        fitting = max(self._console.height - _PROMPT_LINES, 1)
        return ANSI("\n".join([*lines[:fitting], f"{printable(line)}> "]))

    def _start(self) -> None:
        self._live = Live(console=self._console, get_renderable=self._view.render, refresh_per_second=REDRAWS_A_SECOND)
        self._live.start(refresh=True)

    def _stop(self, *, erase: bool) -> None:
        if self._live is not None:
            self._live.transient = erase
            self._live.stop()
            self._live = None
