"""Clients that hold the console's connections: the bounds are the API's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nova_workers.base.config import Settings
from nova_workers.base.config.sections import ApiSettings
from nova_workers.base.http_server.connections import GuardedProtocol
from nova_workers.console.app import build_console
from nova_workers.devstack.commands import console_command
from tests.requirements import proves
from tests.support.servers.asgi import serving
from tests.support.waiting import pass_time, stays

HALF_A_HEAD = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    limits = ApiSettings(head_timeout_s=30, idle_timeout_s=60, max_connections_per_address=3)
    console = build_console(Settings(home=tmp_path, api=limits), api_url="http://127.0.0.1:9")
    async with serving(console, http=_protocol()) as url:
        port = urlsplit(url).port
        assert port is not None
        yield port


def _protocol() -> type[GuardedProtocol]:
    """Return what `nova console` gives to uvicorn."""
    command = console_command(host="127.0.0.1", port=0)
    module, _, name = command[command.index("--http") + 1].partition(":")
    return getattr(import_module(module), name)


async def _answer(port: int, sent: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"content-security-policy: default-src 'none'" in head
    return int(head.split()[1]), body


@proves("security.requests")
async def test_a_client_that_does_not_finish_its_head_is_disconnected(port: int) -> None:
    answer = asyncio.create_task(_answer(port, HALF_A_HEAD))
    await pass_time(31)
    assert await answer == (408, b"The head of the request did not arrive within 30 s.\n")


async def test_an_idle_connection_is_kept_for_the_time_that_is_set(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HALF_A_HEAD + b"\r\n")
    await reader.readuntil(b'{"status":"ok"}')
    # uvicorn by itself ends it after five seconds, as clients do: then a request and the end may meet.
    await pass_time(55)
    await stays(lambda: not reader.at_eof(), for_s=0.1)
    await pass_time(10)
    assert await reader.read() == b""
    writer.close()


@proves("security.requests")
async def test_a_head_that_is_too_large_is_refused(port: int) -> None:
    status, text = await _answer(port, HALF_A_HEAD + b"cookie: " + b"x" * 40_000 + b"\r\n\r\n")
    assert status == 431
    assert b"32,768 bytes" in text


@proves("security.hosts")
async def test_a_page_whose_name_was_pointed_at_the_console_gets_nothing(port: int) -> None:
    status, text = await _answer(
        port, b"GET /login HTTP/1.1\r\nhost: rebound.example:8765\r\nconnection: close\r\n\r\n"
    )
    assert status == 421
    assert b"'rebound.example:8765'" in text


@proves("security.requests")
async def test_an_address_has_so_many_connections(port: int) -> None:
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    status, _ = await _answer(port, HALF_A_HEAD + b"connection: close\r\n\r\n")
    assert status == 200
    # The oldest that has shown no session made room.
    async with asyncio.timeout(60):
        with suppress(ConnectionError):
            assert await held[0][0].read() == b""
    for _, writer in held:
        writer.close()
