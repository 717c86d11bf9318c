"""A receiver of webhooks on loopback: a real HTTP server that keeps its requests and sends the configured answers."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

_Fixed = int | str | None
Answer = _Fixed | Callable[[int], _Fixed]
"""A status; a status line with headers; None, which keeps the connection open and sends nothing; or a function from the
count of requests before to one of these."""


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """The message's id."""
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        """The body."""
        return orjson.loads(self.body)


@dataclass
class Receiver:
    """Answers each path with a status, a whole head, or never.

    Attributes:
        answers: By path; 204 for any other.
        got: The requests, in order.
        most_at_once: The most requests that were open on one path at the same time.
        most_together: The most that were open on all paths.
    """

    port: int = 0
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    got: list[Received] = field(default_factory=list[Received])
    most_at_once: dict[str, int] = field(default_factory=dict[str, int])
    most_together: int = 0
    _open: dict[str, int] = field(default_factory=dict[str, int])

    def url(self, path: str = "/") -> str:
        """Return the address of a path."""
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def host(self) -> str:
        """Host and port, as an operator allows them."""
        return f"127.0.0.1:{self.port}"

    def at(self, path: str) -> list[Received]:
        """Return the requests to a path."""
        return [one for one in self.got if one.path == path]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        method, path, _ = head[0].split(" ")
        assert method == "POST"
        received = Received(path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
        answer = self.answers.get(path, 204)
        answer = answer(len(self.at(path))) if callable(answer) else answer
        self.got.append(received)
        self._open[path] = self._open.get(path, 0) + 1
        self.most_at_once[path] = max(self.most_at_once.get(path, 0), self._open[path])
        self.most_together = max(self.most_together, sum(self._open.values()))
        try:
            if answer is None:
                await reader.read(1)
                return
            line = f"{answer} x" if isinstance(answer, int) else answer
            writer.write(f"HTTP/1.1 {line}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()
        finally:
            self._open[path] -= 1


@asynccontextmanager
async def receiver() -> AsyncGenerator[Receiver]:
    """Run a receiver for the block, on a free port of loopback."""
    made = Receiver()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(made.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def signed_by(secret: str, received: Received) -> bool:
    """Return whether a request is signed by a secret, by the words of the Standard Webhooks specification.

    The text is ``msg_id.timestamp.payload``; the key is what follows ``whsec_``, out of Base64; a header may hold
    several signatures, separated by spaces, each ``v1,`` and Base64.
    """
    assert secret.startswith("whsec_")
    key = base64.b64decode(secret[len("whsec_") :], validate=True)
    text = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}.".encode() + received.body
    digest = hmac.new(key, msg=text, digestmod=hashlib.sha256).digest()
    expected = base64.b64encode(digest).decode()
    pairs = [signature.split(",", 1) for signature in received.headers["webhook-signature"].split(" ")]
    return any(version == "v1" and hmac.compare_digest(given, expected) for version, given in pairs)
