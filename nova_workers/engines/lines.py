"""Reads what a program writes: lines of limited length, each one JSON object."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import cast

from nova_workers.contracts.content import JsonObject

_CHUNK_BYTES = 1 << 16
MAX_LINE_BYTES = 128 << 20
"""Limit of a line of a vendor's program. A message may contain images, but is never longer than this."""


class LineTooLong(ConnectionError):
    """A program wrote a line over the limit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"The program wrote a line of more than {max_bytes} bytes")


async def read_lines(stream: asyncio.StreamReader, max_bytes: int = MAX_LINE_BYTES) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, without their ends.

    Raises:
        LineTooLong: A line is over the limit.
    """
    rest = bytearray()
    while chunk := await stream.read(_CHUNK_BYTES):
        *lines, tail = chunk.split(b"\n")
        for line in lines:
            rest += line
            yield bytes(rest)
            rest.clear()
        rest += tail
        if len(rest) > max_bytes:
            raise LineTooLong(max_bytes)
    if rest:
        yield bytes(rest)


def json_object(line: bytes) -> JsonObject | None:
    """Return the object of a line; None for other text, which some builds of the programs write."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return cast("JsonObject", json.loads(line))
    except ValueError:
        # The program was killed within a line.
        return None
