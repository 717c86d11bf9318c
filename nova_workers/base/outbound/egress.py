"""The HTTP proxy through which commands in the sandbox reach the network, under the rules of outbound requests.

It runs on the event loop of the worker, at sockets that listen in the networks of sandboxes. Each request names its
host: ``CONNECT`` for what is encrypted, an absolute ``http://`` address for what is not. The host is checked and
resolved once, and the connection goes to an address that was checked, so a name cannot answer the check with one
address and the connection with another. What is refused is answered in words.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import httpx2
import structlog

from nova_workers.base.errors import OutboundFailed
from nova_workers.base.observability.addresses import bare_address
from nova_workers.base.outbound.requests import Resolver, permitted_addresses
from nova_workers.base.outbound.rules import OutboundRules

_log = structlog.get_logger(__name__)

_HEAD_BYTES: Final = 32_768
_HEAD_S: Final = 10.0
_IDLE_S: Final = 600.0
"""The life of a connection on which nothing moves in either direction."""
_PIECE_BYTES: Final = 65_536
_MOST_CONNECTIONS: Final = 128
"""The limit of one command."""
_CONNECTS_PER_S: Final = 50.0
"""Of one command, after the first `_CONNECTS_AT_ONCE`: each costs the worker's loop up to 1 ms."""
_CONNECTS_AT_ONCE: Final = 100
"""An installation of packages opens fewer."""
_CONNECTS_PER_S_OF_ALL: Final = 200.0
_CONNECTS_AT_ONCE_OF_ALL: Final = 400
_NOT_ACCEPTED_S: Final = 1.0
"""How long the proxy rests where the worker has no descriptor left for a connection."""
_MOST_LOOKUPS: Final = 16
"""Of names at a time, of all commands."""
_MOST_LOOKUPS_OF_ONE: Final = 2
_MOST_REFUSALS: Final = 5
"""Different ones of one command, which are logged and shown to its model."""
_BROKEN: Final = (OSError, RuntimeError)
"""What a connection raises whose other end is gone; the latter on uvloop, whose transport is closed by then."""
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_AUTHORITY: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_HOP_BY_HOP: Final = frozenset({b"connection", b"keep-alive", b"trailer", b"upgrade", b"expect"})
_ADVICE: Final = "The operator of the fleet admits hosts by NOVA_TOOLS__EGRESS_ALLOW_HOSTS."


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class _Request:
    """The head of a request to the proxy.

    Attributes:
        url: Where it goes.
        tunnel: Whether it is a ``CONNECT``.
        head: What is sent on of it; empty for a tunnel.
        body_bytes: What follows the head.
    """

    url: httpx2.URL
    tunnel: bool
    head: bytes = b""
    body_bytes: int = 0


class _Pace:
    """How often something may be done: so many at once, then at a rate (GCRA).

    `throttled`, which limits requests to the API, says whether one may be done, in a store by name. A connection that
    was accepted is served in any case, and the next one waits.
    """

    def __init__(self, per_s: float, at_once: int) -> None:
        self._interval_s = 1 / per_s
        self._burst_s = at_once / per_s
        self._due_s = 0.0

    def take(self, now_s: float) -> float:
        """Count one that is done now; return after how many seconds the next one may be."""
        self._due_s = max(self._due_s, now_s) + self._interval_s
        return max(0.0, self._due_s - now_s - self._burst_s)


class EgressProxy:
    """Answers for all sandboxes of a worker. Implements `nova_workers.shell_sandbox.egress.EgressGate`."""

    def __init__(self, rules: OutboundRules, *, resolver: Resolver | None = None) -> None:
        self._rules = rules
        # A command may ask for names whose servers never answer. Threads of the loop would wait for these, and the
        # worker would find no host of its own.
        self._threads = ThreadPoolExecutor(_MOST_LOOKUPS, "egress-lookup")
        self._resolver = resolver or self._resolve
        self._pace = _Pace(_CONNECTS_PER_S_OF_ALL, _CONNECTS_AT_ONCE_OF_ALL)

    def open(self, channel: socket.socket) -> _Passage:
        """Answer connections to the socket that comes over a channel. See `EgressGate.open`."""
        return _Passage(channel, self._rules, self._resolver, self._pace)

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port)
        return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class _Passage:
    def __init__(self, channel: socket.socket, rules: OutboundRules, resolver: Resolver, pace: _Pace) -> None:
        self._rules = rules
        self._resolver = resolver
        self._refusals: list[str] = []
        self._lookups = asyncio.Semaphore(_MOST_LOOKUPS_OF_ONE)
        self._channel = channel
        self._paces = (_Pace(_CONNECTS_PER_S, _CONNECTS_AT_ONCE), pace)
        self._connections = set[asyncio.Task[None]]()
        self._accepted = set[socket.socket]()
        """Those whose tasks did not begin yet."""
        self._listener: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        channel.setblocking(False)
        self._opening = self._loop.create_task(self._listen(), name="egress-listen")
        # Also where it is canceled before it began.
        self._opening.add_done_callback(lambda _: channel.close())

    @property
    def refusals(self) -> Sequence[str]:
        """What was refused so far."""
        return self._refusals

    def close(self) -> None:
        """End all connections."""
        self._opening.cancel()
        if self._pause is not None:
            self._pause.cancel()
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
        for task in self._connections:
            task.cancel()
        for connection in self._accepted:
            connection.close()

    async def _listen(self) -> None:
        ready = self._loop.create_future()
        descriptor = self._channel.fileno()
        self._loop.add_reader(descriptor, _settle(ready))
        try:
            await ready
            _, received, _, _ = socket.recv_fds(self._channel, 1, 1)
        finally:
            self._loop.remove_reader(descriptor)
        if received:
            self._listener = socket.socket(fileno=received[0])
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        """Take one connection, and rest where they come too fast: meanwhile the kernel keeps the next ones waiting."""
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            # It left before it was accepted.
            return
        except OSError as error:
            # It stays in the queue: without a rest, each turn of the loop would fail to accept it.
            _log.warning("egress.not_accepted", error=str(error))
            self._rest(listener, _NOT_ACCEPTED_S)
            return
        if len(self._connections) >= _MOST_CONNECTIONS:
            connection.close()
        else:
            self._accepted.add(connection)
            task = self._loop.create_task(self._serve(connection), name="egress-connection")
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        pause_s = max(pace.take(self._loop.time()) for pace in self._paces)
        if pause_s:
            self._rest(listener, pause_s)

    def _rest(self, listener: socket.socket, pause_s: float) -> None:
        self._loop.remove_reader(listener)
        self._pause = self._loop.call_later(pause_s, self._loop.add_reader, listener, self._accept, listener)

    async def _serve(self, connection: socket.socket) -> None:
        self._accepted.discard(connection)
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection, limit=_HEAD_BYTES)
        try:
            await self._exchange(reader, writer)
        except _Refused as error:
            self._note(error)
            with suppress(*_BROKEN):
                async with asyncio.timeout(_HEAD_S):
                    writer.write(_answer(error))
                    await writer.drain()
        except (*_BROKEN, asyncio.IncompleteReadError):
            # One of the two ends is gone, or says nothing.
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # What was drained is with the kernel, and nothing is left to send where a connection ends.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise _Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The head of the request is too long."
            ) from error
        request = _read(head)
        there, upstream = await self._connect(request.url)
        upstream.transport.set_write_buffer_limits(high=0)
        try:
            if request.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                upstream.write(request.head)
            # Not more than its body: what follows on the same connection would be sent unchecked.
            most = None if request.tunnel else request.body_bytes
            async with asyncio.timeout(_IDLE_S) as idle, asyncio.TaskGroup() as both:
                both.create_task(_copy(there, writer, None, idle))
                both.create_task(_copy(reader, upstream, most, idle))
        except* _BROKEN as broken:
            raise ConnectionError from broken
        finally:
            # Not closed: it would stay for as long as the other end takes nothing.
            upstream.transport.abort()

    async def _connect(self, url: httpx2.URL) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with self._lookups:
                addresses = await permitted_addresses(url, self._rules, self._resolver)
        except OutboundFailed as error:
            status = HTTPStatus.FORBIDDEN if error.refused else HTTPStatus.BAD_GATEWAY
            raise _Refused(status, f"{error.message} {_ADVICE}" if error.refused else error.message) from error
        port = _port(url)
        for address in addresses:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._rules.connect_timeout_s):
                    return await asyncio.open_connection(str(address), port, limit=_PIECE_BYTES)
        raise _Refused(HTTPStatus.BAD_GATEWAY, f"'{url.host}:{port}' does not accept a connection.")

    def _note(self, refused: _Refused) -> None:
        if refused.why not in self._refusals and len(self._refusals) < _MOST_REFUSALS:
            _log.info("egress.refused", why=refused.why)
            self._refusals.append(refused.why)


def _settle(ready: asyncio.Future[None]) -> Callable[[], None]:
    def settle() -> None:
        if not ready.done():
            ready.set_result(None)

    return settle


def _look_up(host: str, port: int) -> Sequence[tuple[object, object, object, object, tuple[object, ...]]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _read(head: bytes) -> _Request:
    """Return the request of a head. Raises `_Refused`."""
    first, *lines = head[:-4].split(b"\r\n")
    words = first.split(b" ")
    headers = [line.partition(b":")[::2] for line in lines]
    # A line that ends where only some servers end it is one header here, and two there.
    is_odd = any(character in line for line in (first, *lines) for character in (b"\r", b"\n", b"\0"))
    if is_odd or len(words) != 3 or any(name != name.strip() or not name for name, _ in headers):
        raise _Refused(HTTPStatus.BAD_REQUEST, "The request is not one of HTTP/1.1.")
    method, target, _ = words
    url = _target(method, target.decode("latin-1"))
    hosts = [value.strip().decode("latin-1").lower() for name, value in headers if name.lower() == b"host"]
    host = url.netloc.decode("ascii").lower()
    named = {host, host if url.port else f"{host}:{_port(url)}"}
    if method == b"CONNECT":
        # A tunnel has no port in its Host header with some clients.
        named.add(host.removesuffix(f":{_port(url)}"))
    if len(hosts) > 1 or not named.issuperset(hosts):
        raise _Refused(
            HTTPStatus.BAD_REQUEST, f"The Host header {hosts!r} names another host than {bare_address(str(url))!r}."
        )
    if method == b"CONNECT":
        return _Request(url, tunnel=True)
    kept = [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP | {b"host"}]
    kept = [(name, value) for name, value in kept if not name.lower().startswith(b"proxy-")]
    lengths = {value.strip() for name, value in kept if name.lower() == b"content-length"}
    if any(name.lower() == b"transfer-encoding" for name, _ in kept) or len(lengths) > 1:
        raise _Refused(
            HTTPStatus.LENGTH_REQUIRED, f"A body for {bare_address(str(url))!r} needs one Content-Length, or https."
        )
    length = lengths.pop() if lengths else b"0"
    if not _LENGTH.fullmatch(length):
        raise _Refused(HTTPStatus.BAD_REQUEST, f"{length[:40]!r} is no length of a body.")
    origin = b" ".join((method, url.raw_path, b"HTTP/1.1"))
    kept += [(b"Host", b" " + url.netloc), (b"Connection", b" close")]
    sent = b"\r\n".join((origin, *(name + b":" + value for name, value in kept)))
    return _Request(url, tunnel=False, head=sent + b"\r\n\r\n", body_bytes=int(length))


def _target(method: bytes, target: str) -> httpx2.URL:
    try:
        if method == b"CONNECT":
            if not _AUTHORITY.fullmatch(target):
                raise _Refused(HTTPStatus.BAD_REQUEST, f"{target!r} is no host and port to connect to.")
            return httpx2.URL(f"https://{target}")
        url = httpx2.URL(target)
    except httpx2.InvalidURL as error:
        raise _Refused(
            HTTPStatus.BAD_REQUEST, f"{bare_address(target)!r} is no address ({type(error).__name__})."
        ) from error
    if url.scheme != "http":
        raise _Refused(
            HTTPStatus.BAD_REQUEST,
            f"{bare_address(target)!r} is no address for a proxy: CONNECT and http:// addresses are.",
        )
    return url


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _answer(refused: _Refused) -> bytes:
    body = f"nova: {refused.why}\n".encode()
    status = refused.status
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def _copy(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, most: int | None, idle: asyncio.Timeout
) -> None:
    """Copy to the end of the source, or so many bytes, then end the sink's side if it ended.

    Each piece that moves puts `idle` off.
    """
    loop = asyncio.get_running_loop()
    while most is None or most > 0:
        piece = await source.read(_PIECE_BYTES if most is None else min(_PIECE_BYTES, most))
        if not piece:
            break
        most = None if most is None else most - len(piece)
        sink.write(piece)
        await sink.drain()
        if not idle.expired():
            idle.reschedule(loop.time() + _IDLE_S)
    if most is None and sink.can_write_eof():
        sink.write_eof()
