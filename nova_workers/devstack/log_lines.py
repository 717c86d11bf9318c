"""Output of all child processes on one terminal, each line prefixed with the process's name."""

import os
import sys
from typing import Protocol, TextIO

from nova_workers.program import OutputFailed

__all__ = ["LineSink", "TerminalLines"]

_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
"""ANSI foreground colours that are readable on dark and light."""
_RED = 31
_OWN_NAME = "nova"


class LineSink(Protocol):
    """Receives the output of processes and of the supervisor."""

    def line(self, name: str, text: str) -> None:
        """Take one line of a process."""
        ...

    def say(self, text: str, *, alarm: bool = False) -> None:
        """Take one line of the supervisor itself."""
        ...


class TerminalLines:
    """Writes lines to a stream; in colours on a terminal, unless NO_COLOR is set.

    Args:
        stream: The output; stdout by default.
        width: Width of the longest name.
        children: False drops the children's lines.
    """

    def __init__(self, stream: TextIO | None = None, *, width: int = 8, children: bool = True) -> None:
        target = sys.stdout if stream is None else stream
        self._stream: TextIO | None = target
        self._width = width
        self._children = children
        self._coloured = target.isatty() and not os.environ.get("NO_COLOR")
        self._colour_of: dict[str, int] = {}

    def line(self, name: str, text: str) -> None:
        """Write one line of a process."""
        if self._children:
            colour = self._colour_of.setdefault(name, _COLOURS[len(self._colour_of) % len(_COLOURS)])
            self._write(name, text, colour)

    def say(self, text: str, *, alarm: bool = False) -> None:
        """Write one line of the supervisor itself."""
        self._write(_OWN_NAME, text, _RED if alarm else 1)

    def _write(self, name: str, text: str, colour: int) -> None:
        if self._stream is None:
            return
        prefix = f"{name:<{self._width}} │"
        if self._coloured:
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        try:
            self._stream.write(f"{prefix} {text}\n")
            self._stream.flush()
        except (OutputFailed, OSError, ValueError):
            # The reader closed the pipe (`nova up | head`), or the disk is full; the fleet continues.
            self._stream = None
