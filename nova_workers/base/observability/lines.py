"""Writes log lines to a stream: each at once, or, in a process that writes many, those of a moment together.

A write to a pipe is a system call that releases the interpreter's lock, and wakes the process that reads. So a process
that serves gathers its lines (`gather_lines`) while it has handlers for the signals that end it. Otherwise, such as in
commands and while a process starts and stops, each line is written at once.
"""

import logging
import os
import threading
import time
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Final, TextIO

_MOMENT_S: Final = 0.1
_MOST_CHARS: Final = 65_536
"""More than this is written before the moment is over. It is what a pipe holds, on Linux."""


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes the lines of structlog and of the standard library, in their order.

    While it gathers, a line below WARNING that comes within 100 ms of a write waits for up to 100 ms, for others to be
    written with it. WARNING and above are written at once, with all that waited. The standard library flushes all
    handlers at the end of the interpreter. Its `MemoryHandler` knows no time limit, and formats records only when it
    writes them, in another context.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._chars = 0
        self._written_at_s = 0.0
        self._pid = os.getpid()
        self._wakes: SimpleQueue[bool] | None = None
        self._is_due = False
        """The thread has been woken, and will write what waits."""

    def gather(self) -> None:
        """Gather lines from now on."""
        with self.lock or nullcontext():
            if self._wakes is None:
                # Its `put` may be interrupted by a signal handler that logs, unlike methods of `threading.Event`.
                self._wakes = SimpleQueue()
                self._pid = os.getpid()
                threading.Thread(target=self._write_later, args=(self._wakes,), name="log lines", daemon=True).start()

    def write_at_once(self) -> None:
        """Write what waits, and from now on each line at once."""
        with self.lock or nullcontext():
            if self._wakes is not None:
                self._wakes.put(False)
                self._wakes = None
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record of the standard library."""
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
        else:
            self.take(line, urgent=record.levelno >= logging.WARNING)

    def take(self, line: str, *, urgent: bool) -> None:
        """Take a rendered line. A stream that does not take it is reported as the standard library does, never raised.

        Args:
            line: Without its line feed.
            urgent: Write it now.
        """
        with self.lock or nullcontext():
            self._forget_in_child()
            self._lines.append(line)
            self._chars += len(line)
            quiet_s = time.monotonic() - self._written_at_s
            if self._wakes is None or urgent or quiet_s > _MOMENT_S or self._chars > _MOST_CHARS:
                self.flush()
            elif not self._is_due:
                self._is_due = True
                self._wakes.put(True)

    def flush(self) -> None:
        """Write what waits."""
        with self.lock or nullcontext():
            self._forget_in_child()
            if not self._lines:
                return
            text, self._lines, self._chars = "\n".join([*self._lines, ""]), [], 0
            self._written_at_s = time.monotonic()
            try:
                self.stream.write(text)
                super().flush()
            except Exception:
                self.handleError(logging.makeLogRecord({"msg": text}))

    def close(self) -> None:
        """Write what waits, and each later line at once."""
        self.write_at_once()
        super().close()

    def _forget_in_child(self) -> None:
        """Leave the lines of the parent to it, in a process that was forked: the thread that writes is there, too."""
        if self._wakes is not None and self._pid != os.getpid():
            self._lines, self._chars, self._wakes, self._is_due = [], 0, None, False

    def _write_later(self, wakes: SimpleQueue[bool]) -> None:
        while wakes.get():
            time.sleep(_MOMENT_S)
            with self.lock or nullcontext():
                self._is_due = False
                self.flush()


class StructuredLines:
    """Writes structlog's rendered lines by the handler of the standard library's.

    A record of the standard library for each of our lines, with the place of its caller in the source, would be made to
    be taken apart again: two fifths of the CPU of a line.
    """

    __slots__ = ("_handler", "name")

    def __init__(self, handler: LineHandler, name: str = "") -> None:
        self._handler = handler
        self.name = name

    def info(self, line: str) -> None:
        """Take a line that may wait for others."""
        self._handler.take(line, urgent=False)

    def warning(self, line: str) -> None:
        """Take a line that is written now."""
        self._handler.take(line, urgent=True)

    debug = info
    error = critical = warning


def gather_lines() -> None:
    """Let this process write the lines of a moment together. Its end must come by code that writes what waits.

    That is `write_lines_at_once`, or the end of the interpreter. Without `configure_logging` before it does nothing.
    """
    for handler in _handlers():
        handler.gather()


def write_lines_at_once() -> None:
    """Write the lines that wait, and each later one at once."""
    for handler in _handlers():
        handler.write_at_once()


def _handlers() -> list[LineHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LineHandler)]
