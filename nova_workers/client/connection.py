"""What the generated sync client does in another way: see `nova_workers.client.sync.connection`."""

from asyncio import sleep
from collections.abc import AsyncGenerator

import httpx2
from httpx2 import AsyncClient as Http

__all__ = ["Http", "chunks_of", "lines_of", "sleep"]


async def chunks_of(response: httpx2.Response) -> AsyncGenerator[bytes]:
    """Yield the content of an open response as it comes."""
    async for chunk in response.aiter_bytes():
        yield chunk


async def lines_of(pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the lines of a content that comes in pieces, without their line feeds."""
    rest = bytearray()
    async for piece in pieces:
        rest += piece
        if b"\n" not in piece:
            continue
        *whole, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in whole:
            yield line
