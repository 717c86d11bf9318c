"""A model server on loopback for one rehearsal: the turn before the first real one."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
_LENGTH = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)


@asynccontextmanager
async def answering(stream: str) -> AsyncGenerator[str]:
    """Answer each request with a stream of events, until the block ends. Yields the server's URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            await reader.readexactly(int(length[1]) if length else 0)
            writer.write(_HEAD + stream.encode())
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"


def direct_transport() -> httpx2.AsyncBaseTransport:
    """Return a transport that uses no proxy of the environment, and no certificates."""
    return httpx2.AsyncHTTPTransport(verify=False, trust_env=False)
