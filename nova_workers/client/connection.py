"""What the generated sync client does in another way: see `nova_workers.client.sync.connection`."""

from asyncio import sleep
from collections.abc import AsyncGenerator

import httpx2
from httpx2 import AsyncClient as Http

__all__ = ["Http", "chunks_of", "sleep"]


async def chunks_of(response: httpx2.Response) -> AsyncGenerator[bytes]:
    """Yield the content of an open response as it comes."""
    async for chunk in response.aiter_bytes():
        yield chunk
