"""A proxy between a client and a server on Unix sockets, whose connections a test can cut."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

__all__ = ["RedisProxy"]


class RedisProxy:
    """Forwards bytes between clients and one server. Use it as an async context manager.

    Args:
        redis_url: ``unix://<path>?db=N``.
        folder: Where to put the socket.
        name: Name of the socket.

    Attributes:
        refusing: New connections are closed at once, as by a stopped server.
        deaf: Answers of the server do not arrive.
        cuts_next_answer: The next answer does not arrive, and breaks every connection.
        url: The Redis URL of this end.
    """

    def __init__(self, redis_url: str, folder: Path, *, name: str = "wire.sock") -> None:
        parts = urlsplit(redis_url)
        self._server_path = parts.path
        self._path = folder / name
        self.url = parts._replace(path=str(self._path)).geturl()
        self.refusing = False
        self.deaf = False
        self.cuts_next_answer = False
        self.answered = asyncio.Event()
        """Set when the server answered, whether or not the answer arrived."""
        self._open: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._accept, str(self._path))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._listener.wait_closed()

    def cut(self) -> None:
        """Break every connection."""
        for writer in tuple(self._open):
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.close()
            return
        upstream_reader, upstream_writer = await asyncio.open_unix_connection(self._server_path)
        self._open |= {writer, upstream_writer}
        pumps = [
            asyncio.create_task(self._pump(reader, upstream_writer, from_server=False)),
            asyncio.create_task(self._pump(upstream_reader, writer, from_server=True)),
        ]
        self._pumps.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, upstream_writer):
            each.close()
            self._open.discard(each)
        await asyncio.gather(*pumps, return_exceptions=True)
        self._pumps.difference_update(pumps)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_server: bool) -> None:
        while data := await reader.read(65_536):
            if from_server:
                self.answered.set()
                if self.cuts_next_answer:
                    self.cuts_next_answer = False
                    self.cut()
                    return
                if self.deaf:
                    continue
            writer.write(data)
            await writer.drain()
