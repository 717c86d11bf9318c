"""What the sync client does in another way than the async one: it blocks its thread, never an event loop."""

import asyncio
import builtins
from collections.abc import Generator
from time import sleep
from typing import Any

import httpx2

__all__ = ["Http", "chunks_of", "lines_of", "sleep"]


class Http(httpx2.Client):
    """Sends requests, except in the thread of a running event loop."""

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request.

        Raises:
            RuntimeError: An event loop is running in this thread, and would stand still meanwhile.
        """
        _refuse_running_loop()
        return super().send(request, **options)


def chunks_of(response: httpx2.Response) -> Generator[bytes]:
    """Yield the content of an open response as it comes."""
    yield from response.iter_bytes()


def lines_of(pieces: Generator[bytes]) -> Generator[bytes]:
    """Yield the lines of a content that comes in pieces, without their line feeds."""
    rest = bytearray()
    for piece in pieces:
        rest += piece
        if b"\n" not in piece:
            continue
        *whole, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        yield from whole


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    # A notebook runs its cells in its event loop, which waits for the cell anyway.
    if not hasattr(builtins, "get_ipython"):
        raise RuntimeError(
            "SyncNovaClient would block the event loop that runs in this thread. Use NovaClient and await its methods, "
            "or call the sync client in a thread of its own: await asyncio.to_thread(...)."
        )
