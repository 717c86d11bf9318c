"""The proxy for commands in the sandbox, without a sandbox: what it bounds, refuses, and leaves behind."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from structlog.testing import capture_logs

from nova_workers.base.outbound import egress
from nova_workers.base.outbound.egress import EgressProxy
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.shell_sandbox.egress import Passage
from tests.requirements import proves
from tests.support.waiting import pass_time, until


async def _resolve(_: str, __: int) -> Sequence[str]:
    return ("127.0.0.1",)


def _descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def _passage(*allow_hosts: str, proxy: EgressProxy | None = None) -> AsyncGenerator[tuple[Passage, int]]:
    """Yield a passage whose socket listens here, and its port."""
    ours, theirs = socket.socketpair()
    proxy = proxy or EgressProxy(OutboundRules(allow_hosts=allow_hosts), resolver=_resolve)
    passage = proxy.open(ours)
    with theirs, socket.create_server(("127.0.0.1", 0)) as listener:
        socket.send_fds(theirs, [b"1"], [listener.fileno()])
        port = listener.getsockname()[1]
    try:
        yield passage, port
    finally:
        passage.close()


async def _answer(port: int, *lines: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionError):
        writer.write(b"\r\n".join((*lines, b"", b"")))
        await writer.drain()
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


@proves("sandbox.egress")
@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((b"GET http://own.test/ HTTP/1.1", b"Content-Length: " + b"9" * 5_000), b"400"),
        ((b"GET http://own.test/ HTTP/1.1", b"X-One: x\nHost: other.test"), b"400"),
        ((b"GET http://own.test/ HTTP/1.1", b"X-One: x\rHost: other.test"), b"400"),
        ((b"GET http://own.test/", b"Host: own.test"), b"400"),
        ((b"GET http://own.test/ HTTP/1.1", b"Host : own.test"), b"400"),
        ((b"CONNECT own.test:99999 HTTP/1.1",), b"403"),
        ((b"GET http://own.test/ HTTP/1.1", b"X-Long: " + b"x" * 100_000), b"431"),
    ],
)
async def test_an_odd_head_is_refused_in_words(lines: Sequence[bytes], status: bytes) -> None:
    async with _passage() as (passage, port):
        answer = await _answer(port, *lines)
        assert answer.startswith(b"HTTP/1.1 " + status), answer
        assert len(passage.refusals) == 1


@proves("sandbox.egress")
async def test_connections_and_what_is_logged_of_a_command_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "_MOST_CONNECTIONS", 2)
    with capture_logs() as logs:
        async with _passage() as (passage, port):
            for number in (*range(9), 0, 0):
                await _answer(port, b"CONNECT own.test:%d HTTP/1.1" % number)
            assert len(passage.refusals) == len(logs) == 5
            open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            assert await _answer(port, b"CONNECT own.test:9 HTTP/1.1") == b""
        for reader, writer in open_ones:
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()


@proves("sandbox.egress")
async def test_a_command_that_connects_without_end_takes_little_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel accepts for the proxy, so a command sees connections that wait. Other commands wait for none of it."""
    monkeypatch.setattr(egress, "_CONNECTS_AT_ONCE", 3)
    monkeypatch.setattr(egress, "_CONNECTS_PER_S", 0.001)
    proxy = EgressProxy(OutboundRules(), resolver=_resolve)
    async with _passage(proxy=proxy) as (passage, hostile), _passage(proxy=proxy) as (_, other):
        asked = [asyncio.create_task(_answer(hostile, b"CONNECT own.test:%d HTTP/1.1" % number)) for number in range(9)]
        await until(lambda: len(passage.refusals) >= 3)
        for _ in range(3):
            assert (await _answer(other, b"CONNECT own.test:1 HTTP/1.1")).startswith(b"HTTP/1.1 403 ")
        # The one that exceeds the rate is served, and then the proxy rests.
        assert len(passage.refusals) == sum(task.done() for task in asked) == 4
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


@proves("sandbox.egress")
async def test_a_worker_without_descriptors_tries_rarely_to_accept_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel reports a connection that could not be accepted again with each turn of the loop."""
    failed_s = list[float]()
    accept = socket.socket.accept

    def without_descriptors(listener: socket.socket) -> tuple[socket.socket, object]:
        now_s = asyncio.get_running_loop().time()
        if not failed_s or now_s < failed_s[0] + 0.05:
            failed_s.append(now_s)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(egress, "_NOT_ACCEPTED_S", 0.1)
    async with _passage() as (_, port):
        monkeypatch.setattr(socket.socket, "accept", without_descriptors)
        assert (await _answer(port, b"CONNECT own.test:1 HTTP/1.1")).startswith(b"HTTP/1.1 403 ")
    assert len(failed_s) == 1


@proves("sandbox.egress")
async def test_nothing_stays_open_after_a_command_whatever_its_connections_did() -> None:
    """Of a server that takes nothing, too: what waited to be sent would keep its connection."""
    loop, taken = asyncio.get_running_loop(), list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        own = b"own.test:%d" % server.getsockname()[1]
        before = _descriptors()
        for sent in (b"", b"CONNECT %s HTTP/1.1\r\n\r\n" % own):
            async with _passage(own.decode()) as (_, port):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent + b"x" * 20_000_000 if sent else b"")
                if sent:
                    taken.append((await loop.sock_accept(server))[0])
                    assert await loop.sock_recv(taken[0], 1) == b"x"
            writer.transport.abort()
        await until(lambda: _descriptors() <= before + len(taken))
        taken[0].close()


@proves("sandbox.egress")
@pytest.mark.parametrize("steps", range(6))
async def test_a_passage_that_is_closed_while_it_opens_leaves_no_socket(steps: int) -> None:
    before = _descriptors()
    async with _passage():
        for _ in range(steps):
            await asyncio.sleep(0)
    await until(lambda: _descriptors() <= before)


@proves("sandbox.egress")
async def test_a_connection_ends_when_nothing_moves_and_not_while_one_direction_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(egress, "_IDLE_S", 60.0)
    pieces = asyncio.Queue[bytes]()

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while piece := await pieces.get():
            writer.write(piece)
        # And then says nothing.
        await reader.read()
        writer.close()

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    async with server:
        own = b"own.test:%d" % server.sockets[0].getsockname()[1]
        async with _passage(own.decode()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"CONNECT %s HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n" % own)
            await reader.readuntil(b"\r\n\r\n")
            for _ in range(6):
                await pass_time(20)
                pieces.put_nowait(b"x")
                assert await reader.readexactly(1) == b"x"
            pieces.put_nowait(b"")
            await pass_time(61)
            assert await reader.read() == b""
            writer.close()


@proves("sandbox.egress")
async def test_names_that_never_resolve_keep_no_other_from_being_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the worker, whose threads are others, nor other commands, as each has few lookups at a time."""
    looked_up: list[str] = []
    release = asyncio.Event()

    async def stuck(host: str, _: int) -> Sequence[str]:
        looked_up.append(host)
        if host.startswith("stuck"):
            await release.wait()
        raise OSError("no such host")

    proxy = EgressProxy(OutboundRules(), resolver=stuck)
    async with _passage(proxy=proxy) as (_, hostile), _passage(proxy=proxy) as (_, other):
        asked = [asyncio.create_task(_answer(hostile, b"CONNECT stuck%d.test:443 HTTP/1.1" % n)) for n in range(9)]
        await until(lambda: len(looked_up) == 2)
        assert (await _answer(other, b"CONNECT fine.test:443 HTTP/1.1")).startswith(b"HTTP/1.1 502 ")
        assert len(looked_up) == 3
        release.set()
        await asyncio.gather(*asked)

    def no_default(*_: object) -> None:
        raise AssertionError("a thread of the loop")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", no_default, raising=False)
    own = OutboundRules(allow_hosts=("localhost:1",))
    async with _passage(proxy=EgressProxy(own)) as (_, port):
        assert b"does not accept a connection" in await _answer(port, b"CONNECT localhost:1 HTTP/1.1")
