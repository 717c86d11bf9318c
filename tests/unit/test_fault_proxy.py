"""The proxy by which other tests break connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until


class _Echo:
    """A server that answers with what it received, and keeps it."""

    def __init__(self) -> None:
        self.received = b""
        self.ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            while data := await reader.read(100):
                self.received += data
                writer.write(data)
        self.ended += 1
        writer.close()


@pytest.fixture
def echo() -> _Echo:
    return _Echo()


@pytest.fixture
async def link(echo: _Echo) -> AsyncIterator[FaultProxy]:
    async with await asyncio.start_server(echo.serve, "127.0.0.1", 0) as server:
        async with FaultProxy.to_http(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as link:
            yield link


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


@pytest.fixture
async def connect(link: FaultProxy) -> AsyncIterator[Connect]:
    """Makes connections through the proxy, on which one exchange has worked."""
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(link.url.rsplit(":", 1)[1]))
        writers.append(writer)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        return reader, writer

    yield connect
    for writer in writers:
        writer.close()


async def _silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.05):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def test_a_reset_reaches_the_client_as_a_reset(connect: Connect, link: FaultProxy):
    reader, _ = await connect()
    link.reset()
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    await connect()


async def test_a_forgotten_connection_is_silent_at_both_ends_and_new_ones_work(
    connect: Connect, link: FaultProxy, echo: _Echo
):
    reader, writer = await connect()
    link.forget()
    writer.write(b"lost")
    assert await _silent(reader)
    writer.close()
    _, other = await connect()
    other.close()
    await until(lambda: echo.ended)
    assert echo.received == b"hellohello"
    assert echo.ended == 1


async def test_a_blocked_request_arrives_late_also_from_a_client_that_went_away(
    connect: Connect, link: FaultProxy, echo: _Echo
):
    reader, writer = await connect()
    link.blocks_requests = True
    writer.write(b" late")
    assert await _silent(reader)
    writer.close()
    link.heal()
    await until(lambda: echo.ended)
    assert echo.received == b"hello late"


async def test_a_blocked_answer_arrives_late(connect: Connect, link: FaultProxy, echo: _Echo):
    reader, writer = await connect()
    link.blocks_answers = True
    writer.write(b"x")
    assert await _silent(reader)
    assert echo.received == b"hellox"
    link.heal()
    assert await reader.read(1) == b"x"


async def test_a_lost_answer_resets_every_connection_after_the_server_did_the_work(
    connect: Connect, link: FaultProxy, echo: _Echo
):
    readers = [await connect() for _ in range(2)]
    link.loses_answer_to = b"COMMIT"
    readers[0][1].write(b"BEGIN")
    assert await readers[0][0].readexactly(5) == b"BEGIN"
    readers[0][1].write(b"COMMIT")
    for reader, _ in readers:
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
    assert echo.received.endswith(b"COMMIT")
    assert link.loses_answer_to is None


async def test_a_link_that_refuses_resets_new_connections(connect: Connect, link: FaultProxy):
    link.refuses = True
    with pytest.raises(ConnectionResetError):
        await connect()
    link.heal()
    await connect()
