"""A proxy on one link to a server, which a test can break as a network or a failing server would.

    async with FaultProxy.to_redis(redis_url) as link:
        client = Redis.from_url(link.url)
        link.reset()

It forwards bytes and knows no protocol. Faults are attributes, which apply to open and new connections until they are
set back, and methods, which happen once. `heal` sets all attributes back.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit

_CHUNK_BYTES = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER of no time: the kernel answers with RST instead of FIN."""


@dataclass(frozen=True)
class _Address:
    """Where a server listens: a Unix socket, or a TCP port."""

    path: str | None = None
    host: str = ""
    port: int = 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.path is not None:
            return await asyncio.open_unix_connection(self.path)
        return await asyncio.open_connection(self.host, self.port)


@dataclass(eq=False)
class _Link:
    """One connection of a client, and the one to the server that belongs to it."""

    to_client: asyncio.StreamWriter
    to_server: asyncio.StreamWriter
    answer_is_lost: bool = False
    is_forgotten: bool = False
    pumps: tuple[asyncio.Task[None], ...] = ()

    def reset(self) -> None:
        for pump in self.pumps:
            pump.cancel()
        for writer in (self.to_client, self.to_server):
            # None on uvloop once it is closed.
            end: socket.socket | None = writer.get_extra_info("socket")
            if end is not None and end.family != socket.AF_UNIX and end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()


class FaultProxy:
    """Forwards bytes between clients and one server. Use it as an async context manager, and `to_redis` and its like.

    Attributes:
        url: The server's URL, with this end of the link in it.
        refuses: New connections are reset at once, as by a stopped server.
        delay_s: How long bytes stay on the way, in each direction.
        blocks_requests: What clients send does not arrive, their end of a connection included. As on a network that
            loses packets, it arrives when this is set back, also what was sent by a client that went away meanwhile.
        blocks_answers: The same, for what the server sends.
        loses_answer_to: The next request that contains these bytes (b"" is each) reaches the server; its answer arrives
            nowhere, and every connection is reset. Sets itself back.
        goes_away_at: At this request, counted down from now on, the server goes away: it refuses connections
            until `heal`. None: never. Zero: it went.
        takes_the_last: Whether that request still reaches the server, so that only its answer is lost.
        answered: An event that is set when the server answered, whether or not the answer arrived.
        accepted: How many connections there were.
    """

    def __init__(self, server: _Address, folder: Path | None, name: str) -> None:
        self._server = server
        self._path = None if folder is None else folder / name
        self._url_here = ""
        self.refuses = False
        self.delay_s = 0.0
        self._requests_arrive = asyncio.Event()
        self._answers_arrive = asyncio.Event()
        self.blocks_requests = self.blocks_answers = False
        self.loses_answer_to: bytes | None = None
        self.goes_away_at: int | None = None
        self.takes_the_last = False
        self.answered = asyncio.Event()
        self.accepted = 0
        self._links: set[_Link] = set()
        self._template = ("", "")

    @classmethod
    def to_redis(cls, url: str, folder: Path | None = None) -> Self:
        """Return a proxy to a Redis.

        Args:
            url: ``redis://`` or ``unix://<path>?db=N``.
            folder: Where to listen on a Unix socket; without it on a port of loopback.
        """
        parts = urlsplit(url)
        by_path = parts.scheme == "unix"
        database = parse_qs(parts.query).get("db", ["0"])[0] if by_path else parts.path.strip("/") or "0"
        server = _Address(parts.path) if by_path else _Address(host=parts.hostname or "", port=parts.port or 6379)
        proxy = cls(server, folder, "redis.sock")
        proxy._template = (f"unix://{{path}}?db={database}", f"redis://127.0.0.1:{{port}}/{database}")
        return proxy

    @classmethod
    def to_postgres(cls, url: str, folder: Path | None = None) -> Self:
        """Return a proxy to a Postgres.

        Args:
            url: ``postgresql://``, with ``host=`` in its query for a folder of a Unix socket.
            folder: Where to listen on a Unix socket; without it on a port of loopback.
        """
        parts = urlsplit(url)
        socket_folder = parse_qs(parts.query).get("host", [""])[0]
        port = parts.port or 5432
        server = (
            _Address(f"{socket_folder}/.s.PGSQL.{port}")
            if socket_folder.startswith("/")
            else _Address(host=parts.hostname or "", port=port)
        )
        proxy = cls(server, folder, ".s.PGSQL.5432")
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        proxy._template = (
            f"{parts.scheme}://{user}{parts.path}?host={{folder}}",
            f"{parts.scheme}://{user}127.0.0.1:{{port}}{parts.path}",
        )
        return proxy

    @classmethod
    def to_http(cls, url: str) -> Self:
        """Return a proxy to an HTTP server, on a port of loopback.

        Args:
            url: ``http://host:port``, and any path.
        """
        parts = urlsplit(url)
        proxy = cls(_Address(host=parts.hostname or "", port=parts.port or 80), None, "")
        proxy._template = ("", f"http://127.0.0.1:{{port}}{parts.path}")
        return proxy

    @property
    def blocks_requests(self) -> bool:
        """Whether what clients send does not arrive."""
        return not self._requests_arrive.is_set()

    @blocks_requests.setter
    def blocks_requests(self, blocks: bool) -> None:
        _set(self._requests_arrive, not blocks)

    @property
    def blocks_answers(self) -> bool:
        """Whether what the server sends does not arrive."""
        return not self._answers_arrive.is_set()

    @blocks_answers.setter
    def blocks_answers(self, blocks: bool) -> None:
        _set(self._answers_arrive, not blocks)

    @property
    def url(self) -> str:
        """The server's URL, with this end of the link in it. From the start of the block on."""
        return self._url_here

    @property
    def connections(self) -> int:
        """How many connections are open and not forgotten."""
        return sum(not link.is_forgotten for link in self._links)

    async def __aenter__(self) -> Self:
        by_path, by_port = self._template
        if self._path is not None:
            self._listener = await asyncio.start_unix_server(self._accept, str(self._path))
            self._url_here = by_path.format(path=self._path, folder=self._path.parent)
        else:
            self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self._url_here = by_port.format(port=self._listener.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        pumps = [pump for link in self._links for pump in link.pumps]
        self.reset()
        await asyncio.gather(*pumps, return_exceptions=True)
        await self._listener.wait_closed()

    def heal(self) -> None:
        """Forward everything from now on. What was reset or forgotten stays so."""
        self.refuses = self.blocks_requests = self.blocks_answers = False
        self.delay_s = 0.0
        self.loses_answer_to = self.goes_away_at = None
        # An answer that is late would reset all connections, also those of what comes after the fault.
        for link in tuple(self._links):
            if link.answer_is_lost:
                link.reset()

    def reset(self) -> None:
        """Reset every open connection, at both ends."""
        for link in tuple(self._links):
            link.reset()

    def forget(self) -> None:
        """Forget every open connection, as a firewall does with those that were idle for long.

        Nothing arrives at either end any more, and no end learns that the other one closed. New connections work.
        """
        for link in self._links:
            link.is_forgotten = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refuses:
            writer.transport.abort()
            return
        try:
            from_server, to_server = await self._server.connect()
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, to_server)
        link.pumps = (
            asyncio.create_task(self._pump(link, reader, to_server, self._requests_arrive)),
            asyncio.create_task(self._pump(link, from_server, writer, self._answers_arrive)),
        )
        self._links.add(link)
        await asyncio.gather(*link.pumps, return_exceptions=True)
        self._links.discard(link)

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, arrives: asyncio.Event
    ) -> None:
        try:
            while data := await reader.read(_CHUNK_BYTES):
                if self._loses(link, data, is_answer=writer is link.to_client):
                    return
                await self._arrival(link, arrives)
                writer.write(data)
                await writer.drain()
            await self._arrival(link, arrives)
            writer.close()
        except OSError:
            link.reset()

    def _loses(self, link: _Link, data: bytes, *, is_answer: bool) -> bool:
        if not is_answer:
            if self.loses_answer_to is not None and self.loses_answer_to in data:
                self.loses_answer_to = None
                link.answer_is_lost = True
            return self._goes_away(link)
        self.answered.set()
        if link.answer_is_lost:
            self.reset()
        return link.answer_is_lost

    def _goes_away(self, link: _Link) -> bool:
        """Count a request. True if the server went away before it arrived."""
        if not self.goes_away_at:
            return False
        self.goes_away_at -= 1
        if self.goes_away_at:
            return False
        self.refuses = True
        link.answer_is_lost = self.takes_the_last
        if not self.takes_the_last:
            self.reset()
        return not self.takes_the_last

    async def _arrival(self, link: _Link, arrives: asyncio.Event) -> None:
        """Wait until bytes arrive in this direction; until the connection is reset, if it is forgotten."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        await arrives.wait()
        if link.is_forgotten:
            await asyncio.Event().wait()


def _set(event: asyncio.Event, is_set: bool) -> None:
    if is_set:
        event.set()
    else:
        event.clear()
