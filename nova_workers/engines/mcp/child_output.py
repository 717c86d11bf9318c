"""Logs what a child process writes to stderr.

Inherited directly, the output would bypass the redaction, and a server may print the secrets that it was started with.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TextIO

import structlog

from nova_workers.base.observability.redaction import hide
from nova_workers.contracts.content import storable

_log = structlog.get_logger(__name__)

_MAX_LINE_BYTES = 65_536
"""A longer line is logged in parts."""
_MAX_LOGGED_BYTES = 1_000_000
"""The limit of a connection. What follows is read and dropped, since a server would wait for a reader."""
_LAST_LINES_S = 0.5
"""How long to wait for the last lines after the connection closed. A grandchild may keep the pipe open."""


_KEPT_LINES = 5
_KEPT_CHARS = 300
"""The length of a line that is kept."""


class LastLines:
    """The last lines that a server wrote to stderr: redacted, and bounded in number and length."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def add(self, line: str) -> None:
        """Add a line, redacted as in the current context."""
        self._lines.append(storable(hide(line))[:_KEPT_CHARS])

    def all(self) -> tuple[str, ...]:
        """Return the lines, the oldest first."""
        return tuple(self._lines)


@asynccontextmanager
async def logged_output(server: str, last: LastLines) -> AsyncGenerator[TextIO]:
    """Provide a file as a child's stderr; log each line, redacted as in the current context, and keep the last ones."""
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as source, os.fdopen(write, "w") as sink:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), source
        )
        logging = asyncio.create_task(_log_lines(server, reader, last), name=f"mcp-stderr-{server}")
        try:
            yield sink
        finally:
            sink.close()
            await asyncio.wait((logging,), timeout=_LAST_LINES_S)
            logging.cancel()
            transport.close()


async def _log_lines(server: str, reader: asyncio.StreamReader, last: LastLines) -> None:
    held = b""
    left_bytes = _MAX_LOGGED_BYTES
    while piece := await reader.read(_MAX_LINE_BYTES):
        if left_bytes < 0:
            continue
        left_bytes -= len(piece)
        if left_bytes < 0:
            _log.warning("mcp_server_said_too_much", server=server, logged_bytes=_MAX_LOGGED_BYTES)
            held = b""
            continue
        *lines, held = (held + piece).split(b"\n")
        for line in lines:
            _log_line(server, line, last)
        if len(held) > _MAX_LINE_BYTES:
            _log_line(server, held, last)
            held = b""
    _log_line(server, held, last)


def _log_line(server: str, line: bytes, last: LastLines) -> None:
    text = line.decode("utf-8", "replace").strip()
    if text:
        last.add(text)
        _log.info("mcp_server_said", server=server, line=text)
