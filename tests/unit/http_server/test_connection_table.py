"""Clients without a valid key that fill the table of connections, and others that come meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from starlette.types import Receive, Scope, Send

from api.errors import problem_response
from nova_workers.base.config.sections import ApiSettings
from nova_workers.base.http_server.addresses import TrustedProxies
from nova_workers.base.http_server.connection_table import prove_connection
from nova_workers.base.http_server.connections import ConnectionLimits, GuardedProtocol
from tests.requirements import proves
from tests.support.servers.asgi import serving
from tests.support.waiting import pass_time, until

_PROXY, _MOST, _MOST_OF_ONE = "127.0.3.1", 10, 6
_WITHOUT_KEY = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n"

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """A server that refuses requests without a key before it reads them, and holds those for ``/hold``."""

    def __init__(self) -> None:
        self.port = 0
        self.held = 0
        self._clients: list[Client] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            limits = ApiSettings(
                max_connections=_MOST,
                max_connections_per_address=_MOST_OF_ONE,
                head_timeout_s=60,
                body_timeout_s=600,
            )
            scope["state"]["connections"] = ConnectionLimits(limits, TrustedProxies([_PROXY]), answer=problem_response)
            for _ in range(2):
                await send({"type": (await receive())["type"] + ".complete"})
            return
        has_key = (b"authorization", b"Bearer good") in scope["headers"]
        if has_key:
            prove_connection(scope)
        if scope["path"] == "/hold":
            self.held += 1
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        status = 200 if has_key else 401
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def connect(self, host: str, sent: bytes = b"") -> Client:
        """Connect from an address, and send."""
        client = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0))
        self._clients.append(client)
        client[1].write(sent)
        return client

    async def hold(self, host: str, **headers: str) -> Client:
        """Connect with a key, for a request that is not answered."""
        before = self.held
        client = await self.connect(host, _head("/hold", **headers))
        await until(lambda: self.held > before, "the request to be held")
        return client

    def close(self) -> None:
        """Close every client."""
        for _, writer in self._clients:
            writer.close()


def _head(path: str = "/", *, key: str = "good", **headers: str) -> bytes:
    given = {"host": "localhost", "authorization": f"Bearer {key}", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
    return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()


async def _status(client: Client) -> int:
    async with asyncio.timeout(60):
        return int((await client[0].readuntil(b"\r\n\r\n")).split()[1])


async def _ends(client: Client) -> bytes:
    """Return what a client reads until its connection ends."""
    read = b""
    async with asyncio.timeout(60):
        with suppress(ConnectionError):
            while piece := await client[0].read(65_536):
                read += piece
    return read


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with serving(server, http=GuardedProtocol) as url:
        server.port = urlsplit(url).port or 0
        yield server
        server.close()


@proves("security.connections")
async def test_after_a_401_the_time_of_the_body_no_longer_counts(server: Server) -> None:
    client = await server.connect("127.0.3.2", _WITHOUT_KEY + b"\r\n")
    assert await _status(client) == 401
    # Not the ten minutes of the body.
    await pass_time(61)
    await _ends(client)


@proves("security.connections")
async def test_two_addresses_that_hold_all_connections_shut_out_no_one_with_a_key(server: Server) -> None:
    flood = [await server.connect(f"127.0.3.{2 + number % 2}", _WITHOUT_KEY) for number in range(_MOST)]
    honest = await server.connect("127.0.3.4", _head())
    assert await _status(honest) == 200
    assert await _ends(flood[0]) == b""
    # It stays while they come again.
    for number in range(2 * _MOST):
        await server.connect(f"127.0.3.{2 + number % 2}", _WITHOUT_KEY)
    honest[1].write(_head())
    assert await _status(honest) == 200


@proves("security.connections")
async def test_connections_without_a_key_shut_out_no_one_at_the_same_address(server: Server) -> None:
    for _ in range(_MOST_OF_ONE):
        await server.connect("127.0.3.2", _WITHOUT_KEY)
    assert await _status(await server.connect("127.0.3.2", _head())) == 200


@proves("security.connections")
async def test_connections_that_are_busy_with_valid_keys_stay(server: Server) -> None:
    held = [await server.hold("127.0.3.2") for _ in range(_MOST_OF_ONE)]
    refused = await _ends(await server.connect("127.0.3.2"))
    assert refused.startswith(b"HTTP/1.1 429 ")
    assert b"NOVA_API__MAX_CONNECTIONS_PER_ADDRESS" in refused
    held += [await server.hold("127.0.3.3") for _ in range(_MOST - _MOST_OF_ONE)]
    refused = await _ends(await server.connect("127.0.3.4"))
    assert refused.startswith(b"HTTP/1.1 429 ")
    assert b"NOVA_API__MAX_CONNECTIONS." in refused
    assert not any(reader.at_eof() for reader, _ in held)


@proves("security.connections")
async def test_an_idle_connection_makes_room(server: Server) -> None:
    idle = await server.connect("127.0.3.2", _head())
    assert await _status(idle) == 200
    for number in range(_MOST - 1):
        await server.hold(f"127.0.3.{3 + number % 2}")
    assert await _status(await server.connect("127.0.3.5", _head())) == 200
    assert await _ends(idle) == b""


@proves("security.connections")
async def test_a_client_of_a_trusted_proxy_has_the_share_of_its_own_address(server: Server) -> None:
    by_proxy = [await server.hold(_PROXY, x_forwarded_for="192.0.2.66, 203.0.113.7") for _ in range(_MOST_OF_ONE)]
    refused = await _ends(await server.connect(_PROXY, _head(x_forwarded_for="192.0.2.67, 203.0.113.7")))
    assert refused.startswith(b"HTTP/1.1 429 ")
    # Another client of the proxy is not concerned, nor is the proxy's address.
    other = await server.connect(_PROXY, _head(x_forwarded_for="203.0.113.8"))
    assert await _status(other) == 200
    # The same connection carries requests of others, one after the other.
    other[1].write(_head(x_forwarded_for="203.0.113.9"))
    assert await _status(other) == 200
    assert not any(reader.at_eof() for reader, _ in by_proxy)


@proves("security.connections")
async def test_a_client_of_a_proxy_that_sends_no_key_makes_room_for_those_that_do(server: Server) -> None:
    slow = _WITHOUT_KEY.replace(b"POST /", b"POST /hold") + b"x-forwarded-for: 203.0.113.7\r\n\r\n"
    flood = [await server.connect(_PROXY, slow) for _ in range(_MOST_OF_ONE)]
    await until(lambda: server.held == _MOST_OF_ONE, "all of them to be there")
    assert await _status(await server.connect(_PROXY, _head(x_forwarded_for="203.0.113.7"))) == 200
    assert await _ends(flood[0]) == b""
