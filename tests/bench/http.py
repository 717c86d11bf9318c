"""A load generator's HTTP client: HTTP/1.1 with kept connections on bare asyncio protocols.

The load generator shares the machine's cores with the measured processes, so each of its own milliseconds distorts the
figure. A request costs this client about 0.1 ms of CPU; the general-purpose clients take 0.5 to 1 ms
(the CPU it did use stands in the table's footnotes). It speaks to our own API only: no redirects, no TLS, no retries.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
import orjson

_TIMEOUT_S = 120.0
_MOST_IDLE_S = 4.0
"""Below the 5 s after which uvicorn, in the floor, closes a connection: a request must not meet its end."""

OnPiece = Callable[[bytes, float], None]
"""Takes a piece of a body and when it arrived, on `time.perf_counter`'s clock."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. Times are on `time.perf_counter`'s clock.

    Attributes:
        began_s: When its request was handed to the kernel.
        ended_s: When its last byte arrived.
    """

    status: int
    body: bytes
    began_s: float
    ended_s: float

    def json(self) -> Any:
        """Return the body as JSON."""
        return orjson.loads(self.body)


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._done: asyncio.Future[Answer] | None = None
        self._pieces: list[bytes] = []
        self._on_piece: OnPiece | None = None
        self._began_s = 0.0
        self._arrived_s = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and will be when a request arrives."""
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and time.perf_counter() - self._arrived_s < _MOST_IDLE_S

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def request(self, message: bytes, on_piece: OnPiece | None) -> Answer:
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._pieces = []
        self._on_piece = on_piece
        self._began_s = time.perf_counter()
        self._transport.write(message)
        return await self._done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, but have their methods.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._arrived_s = time.perf_counter()
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the API closed the connection in mid-answer"))

    # What the parser calls.

    def on_body(self, body: bytes) -> None:
        if self._on_piece is not None:
            self._on_piece(body, self._arrived_s)
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._done is not None and not self._done.done():
            status = self._parser.get_status_code()
            self._done.set_result(Answer(status, b"".join(self._pieces), self._began_s, self._arrived_s))


class LoadClient:
    """Sends requests over as many connections as are in use at once, and keeps them for the next ones."""

    def __init__(self, base_url: str, api_key: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        parts = urlsplit(base_url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {api_key}\r\n".encode()
        self._idle: list[_Connection] = []
        self.open_connections = 0
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    async def post(
        self, path: str, body: Any, *, headers: Mapping[str, str] | None = None, on_piece: OnPiece | None = None
    ) -> Answer:
        """Send a POST with a JSON body.

        Args:
            path: With its query, if any.
            body: Anything that JSON has.
            headers: Beside those of every request.
            on_piece: Gets the body as it comes; the answer's own is then empty.

        Raises:
            TimeoutError: No whole answer within `timeout_s`, two minutes by default.
        """
        content = orjson.dumps(body)
        own = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items()).encode()
        head = b"POST %s HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        return await self._send(head % (path.encode(), self._head + own, len(content)) + content, on_piece)

    async def get(self, path: str, *, on_piece: OnPiece | None = None) -> Answer:
        """Send a GET. Its body and errors are those of `post`."""
        return await self._send(b"GET %s HTTP/1.1\r\n%s\r\n" % (path.encode(), self._head), on_piece)

    async def _send(self, message: bytes, on_piece: OnPiece | None) -> Answer:
        async with self._connection() as connection, asyncio.timeout(self._timeout_s):
            return await connection.request(message, on_piece)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[_Connection]:
        while self._idle and not self._idle[-1].is_usable:
            self._idle.pop().close()
        if self._idle:
            connection = self._idle.pop()
        else:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, self._host, self._port)
            self.open_connections += 1
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
