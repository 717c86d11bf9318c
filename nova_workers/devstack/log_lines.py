"""Output of all child processes on one terminal, each line prefixed with the process's name."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Final, Protocol, TextIO

from nova_workers.base.program import OutputFailed

_LONGEST_LINE_BYTES: Final = 16_384

_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
"""ANSI foreground colours that are readable on dark and light."""
_RED = 31
_OWN_NAME = "nova"


class LineSink(Protocol):
    """Receives the output of processes and of the supervisor."""

    def lines(self, name: str, texts: Sequence[str]) -> None:
        """Take lines of a process, in their order."""
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

    def lines(self, name: str, texts: Sequence[str]) -> None:
        """Write lines of a process, with one write."""
        if self._children:
            colour = self._colour_of.setdefault(name, _COLOURS[len(self._colour_of) % len(_COLOURS)])
            self._write(name, texts, colour)

    def say(self, text: str, *, alarm: bool = False) -> None:
        """Write one line of the supervisor itself."""
        self._write(_OWN_NAME, [text], _RED if alarm else 1)

    def _write(self, name: str, texts: Sequence[str], colour: int) -> None:
        if self._stream is None:
            return
        prefix = f"{name:<{self._width}} │"
        if self._coloured:
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        try:
            self._stream.write("".join([f"{prefix} {text}\n" for text in texts]))
            self._stream.flush()
        except (OutputFailed, OSError, ValueError):
            # The reader closed the pipe (`nova up | head`), or the disk is full; the fleet continues.
            self._stream = None


class LineReader(asyncio.Protocol):
    """Passes the output of a process to a sink: all lines that a read of its pipe brings together, without empty ones.

    Attributes:
        ended: Set when the pipe is closed, and all of it is passed on.
    """

    def __init__(self, name: str, sink: LineSink) -> None:
        self._name = name
        self._sink = sink
        self._rest = b""
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Take what a read brought."""
        block = self._rest + data
        last = block.rfind(b"\n")
        end = last + 1 if len(block) - last <= _LONGEST_LINE_BYTES else len(block)
        self._rest = block[end:]
        self._pass_on(block[:end])

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end, which may be a line without a line feed."""
        self._pass_on(self._rest)
        self.ended.set()

    def _pass_on(self, block: bytes) -> None:
        texts = [text for line in block.decode(errors="replace").split("\n") if (text := line.rstrip())]
        if texts:
            self._sink.lines(self._name, texts)
