"""Response bodies, read in bounds: of what comes in, and of what it unpacks to."""

import zlib
from collections.abc import Callable

import httpx2

from nova_workers.base.errors import OutboundFailed

Unpack = Callable[[bytes, int], bytes]
"""Takes a piece of a packed body, and returns at most so many bytes. The rest comes with the next call."""

_ANY_WRAPPER = 32 + zlib.MAX_WBITS
"""Lets zlib see for itself whether it is gzip or zlib."""


async def read_body(response: httpx2.Response, max_bytes: int) -> tuple[bytes, bool]:
    """Return the body, unpacked, and whether it was cut at `max_bytes`.

    The HTTP client's own unpacking has no bound: a chunk of 64 KB can become 64 MB.

    Raises:
        OutboundFailed: The body is packed in a way that was not asked for, or broken.
    """
    unpack = unpacker(response.headers.get("content-encoding", ""))
    body = bytearray()
    received = 0
    async for chunk in response.aiter_raw():
        received += len(chunk)
        room = max_bytes + 1 - len(body)
        body += chunk[:room] if unpack is None else unpack(chunk, room)
        if len(body) > max_bytes or received > max_bytes:
            return bytes(body[:max_bytes]), True
    return bytes(body), False


class _Inflater:
    """Unpacks gzip and deflate, the latter with or without its wrapper."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_ANY_WRAPPER)
        self._begun = False

    def __call__(self, chunk: bytes, room: int) -> bytes:
        if self._inflate.eof:
            # zlib would keep all that follows, at a cost that grows with the square of it.
            return b""
        try:
            unpacked = self._inflate.decompress(self._inflate.unconsumed_tail + chunk, room)
        except zlib.error as error:
            if self._begun:
                raise OutboundFailed(f"The response is broken: {error}", refused=False) from error
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            self._begun = True
            return self(chunk, room)
        self._begun = True
        return unpacked


def unpacker(encoding: str) -> Unpack | None:
    """Return the function that unpacks a body with this Content-Encoding; None if it is not packed.

    Raises:
        OutboundFailed: The body is packed in a way that was not asked for.
    """
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return _Inflater()
        case other:
            raise OutboundFailed(f"The response is packed as {other!r}, which was not asked for.", refused=False)
