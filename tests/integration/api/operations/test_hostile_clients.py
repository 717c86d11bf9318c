"""Clients with and without a key that try to exhaust the API: one served API, from addresses of their own."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from urllib.parse import urlsplit

import httpx2
import orjson
import pytest
import pytest_asyncio
from starlette.types import Receive, Scope, Send

from api.errors import problem_response
from api.state import ApiState
from nova_workers.base.config import Settings
from nova_workers.base.config.sections import ApiSettings
from nova_workers.base.http_server.addresses import TrustedProxies
from nova_workers.base.http_server.connections import ConnectionLimits, GuardedProtocol
from nova_workers.ledger.database import Connection, Database, PostgresDatabase
from tests.integration.api.conftest import Api, served
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.requirements import proves
from tests.support.servers.asgi import serving
from tests.support.waiting import pass_time, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_LATE_S = 10.0
_LIMITS = {
    # So that each test has an address of its own. Other addresses of loopback are no proxies.
    "trusted_proxies": ("127.0.0.1",),
    "requests_per_s_per_address": 10,
    "requests_per_s_per_key": 5,
    "requests_per_s_without_key": 3,
    "failed_keys_per_minute": 5,
    "max_connections_per_address": 100,
    "head_timeout_s": _LATE_S,
    "body_timeout_s": _LATE_S,
    "unread_timeout_s": _LATE_S,
}
_addresses = (f"203.0.113.{number}" for number in itertools.count(1))
_hosts = (f"127.0.1.{number}" for number in itertools.count(1))


class LimitedApi(Api):
    """The API with low limits.

    Attributes:
        owner: A pool of the user who owns the tables, and makes tenants.
    """

    def __init__(self, url: str, state: ApiState, tenant: Tenant, owner: Database) -> None:
        super().__init__(url, state, tenant)
        self.owner = owner


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(shared_settings: Settings) -> AsyncGenerator[LimitedApi]:
    """The API with low limits, shared by all tests here."""
    limits = shared_settings.api.model_copy(update=_LIMITS)
    database = PostgresDatabase(shared_settings.require_database_url(), pool_size=2)
    tenant = await make_tenant(database)
    async with served(shared_settings.model_copy(update={"api": limits})) as (base, state):
        api = LimitedApi(base, state, tenant, database)
        async with api.http:
            yield api
    await database.close()


@asynccontextmanager
async def _client(api: Api, key: str | None, address: str) -> AsyncGenerator[httpx2.AsyncClient]:
    async with api.client(key) as client:
        client.headers["x-forwarded-for"] = address
        yield client


@asynccontextmanager
async def _connected(
    api: Api, host: str | None = None
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port = urlsplit(api.url).port
    assert port is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host or next(_hosts), 0))
    try:
        yield reader, writer
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, object]]:
    """Return status and problem of a response after which the server closes the connection."""
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    return int(head.split()[1]), orjson.loads(body)


def _head(api: Api, method: str = "POST", path: str = "/v1/runs", *, key: bool = True, **headers: str) -> bytes:
    given = {"host": "localhost", "content-type": "application/json"}
    if key:
        given["authorization"] = f"Bearer {api.tenant.key}"
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


@proves("security.requests")
async def test_a_request_without_a_key_is_refused_before_its_body_is_sent(api: Api) -> None:
    async with _connected(api) as (reader, writer):
        writer.write(_head(api, key=False, content_length="1000000"))
        status = int((await reader.readline()).split()[1])
    assert status == 401


async def test_blanks_after_a_header_are_none_of_its_value(api: Api) -> None:
    async with _connected(api) as (reader, writer):
        head = _head(api, "GET", "/v1/whoami", host="localhost \t", authorization=f"Bearer {api.tenant.key} \t ")
        writer.write(head)
        assert int((await reader.readline()).split()[1]) == 200


async def test_the_rest_of_a_body_that_is_not_read_does_not_keep_its_connection(api: Api) -> None:
    async with _connected(api) as (reader, writer):
        writer.write(_head(api, key=False, content_length="1000000"))
        await reader.readuntil(b"\r\n\r\n")
        dripping = asyncio.create_task(_drip(writer, b"x"))
        await pass_time(_LATE_S + 1)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(dripping, 20)


@pytest.mark.parametrize("sent", [b"", b"GET /v1/runs HTTP/1.1\r\nhost: localhost\r\n"], ids=["nothing", "half a head"])
@proves("security.requests")
async def test_a_client_that_does_not_finish_its_head_is_disconnected(api: Api, sent: bytes) -> None:
    async with _connected(api) as (reader, writer):
        writer.write(sent)
        await pass_time(_LATE_S + 1)
        async with asyncio.timeout(60):
            rest = await reader.read()
    assert rest.startswith(b"HTTP/1.1 408 ") == bool(sent)


@proves("security.requests")
async def test_a_head_that_drips_is_cut_off(api: Api) -> None:
    async with _connected(api) as (reader, writer):
        writer.write(b"GET /v1/runs HTTP/1.1\r\n")
        dripping = asyncio.create_task(_drip(writer, b"x: y\r\n"))
        await pass_time(_LATE_S + 1)
        status, told = await _answer(reader)
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
    assert (status, told["code"]) == (408, "request_too_slow")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/runs HTTP/1.1\r\n" + b"a: b\r\n" * 40_000 + b"\r\n",
        b"GET /v1/runs HTTP/1.1\r\na: " + b"b" * 400_000,
        b"GET /v1/" + b"r" * 60_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["many headers", "an endless header", "a long target"],
)
@proves("security.requests")
async def test_a_head_that_is_too_large_is_refused(api: Api, head: bytes) -> None:
    async with _connected(api) as (reader, writer):
        writer.write(head)
        status, told = await _answer(reader)
    assert (status, told["code"]) == (431, "head_too_large")


@proves("security.requests")
async def test_requests_that_do_not_wait_for_answers_are_bounded(api: Api) -> None:
    async with _connected(api) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5_000)
        async with asyncio.timeout(60):
            told = await reader.read()
    assert b"malformed_request" in told
    assert told.count(b"HTTP/1.1 200") < 20


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/v1/tenant"])
@proves("security.hosts")
async def test_a_page_whose_name_was_pointed_at_the_api_gets_nothing(api: Api, path: str) -> None:
    refused = await api.http.get(path, headers={"host": "rebound.example"})
    assert (refused.status_code, refused.json()["code"]) == (421, "unknown_host")
    assert "NOVA_ALLOWED_HOSTS" in refused.json()["detail"]
    assert (await api.http.get(path, headers={"host": "localhost:8700"})).status_code == 200


@proves("security.requests")
async def test_a_slow_body_is_cut_off_by_its_deadline(api: Api) -> None:
    async with _connected(api) as (reader, writer):
        writer.write(_head(api, content_length="1000000"))
        dripping = asyncio.create_task(_drip(writer, b" "))
        await pass_time(_LATE_S + 1)
        async with asyncio.timeout(60):
            told = await reader.readuntil(b"}")
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
    assert told.startswith(b"HTTP/1.1 408 ")
    assert b'"request_too_slow"' in told


@proves("security.requests")
async def test_connections_are_bounded_by_address_and_others_are_served(api: Api) -> None:
    host = next(_hosts)
    async with _held(api, host, 100) as held, _connected(api, host) as (reader, writer):
        # The oldest that has shown no key makes room.
        assert await asyncio.to_thread(held[0].recv, 1) == b""
        writer.write(_head(api, "GET", "/v1/tenant", connection="close"))
        assert (await _answer(reader))[0] == 200
        assert (await api.http.get("/v1/tenant", headers={"x-forwarded-for": next(_addresses)})).status_code == 200
    # They are counted down again.
    async with _connected(api, host) as (reader, writer):
        writer.write(_head(api, "GET", "/healthz", connection="close"))
        assert (await _answer(reader))[0] == 200


@proves("security.rates")
async def test_an_address_that_calls_too_often_is_slowed_and_told_for_how_long(api: LimitedApi) -> None:
    address, keys = next(_addresses), [await _tenant(api) for _ in range(4)]
    calls = [api.http.get("/v1/tenant", headers=_as(key, address)) for key in keys for _ in range(40)]
    answers = await asyncio.gather(*calls)
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["code"] == "rate_limited"
    assert int(refused.headers["retry-after"]) >= 1
    assert "address made more than 10 requests a second" in refused.json()["detail"]
    assert (await api.http.get("/v1/tenant", headers=_as(keys[0], next(_addresses)))).status_code == 200


@pytest.mark.parametrize(("path", "served"), [("/openapi.json", 200), ("/v1/tenant", 401), ("/v1/nothing", 401)])
@proves("security.rates")
async def test_without_a_key_an_address_may_call_less_often(api: LimitedApi, path: str, served: int) -> None:
    address = next(_addresses)
    async with _client(api, None, address) as client:
        answers = await asyncio.gather(*(client.get(path) for _ in range(60)))
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(served) >= 30
    assert statuses.count(429) >= 1
    assert (await api.http.get("/v1/tenant", headers=_as(await _tenant(api), address))).status_code == 200


@proves("security.rates")
async def test_a_key_that_calls_too_often_is_slowed_from_every_address(api: LimitedApi) -> None:
    tenant = await _tenant(api)
    calls = [api.http.get("/v1/tenant", headers=_as(tenant, next(_addresses))) for _ in range(80)]
    statuses = [answer.status_code for answer in await asyncio.gather(*calls)]
    assert statuses.count(200) >= 50
    assert statuses.count(429) >= 1


@proves("security.guesses")
async def test_an_address_that_guesses_keys_is_slowed_and_shuts_out_no_valid_key(api: LimitedApi) -> None:
    guesser = next(_addresses)
    known, unknown = await _tenant(api), await _tenant(api)
    async with _client(api, known, guesser) as client:
        assert (await client.get("/v1/tenant")).status_code == 200
    async with _client(api, None, guesser) as client:
        tries = [client.get("/v1/tenant", headers={"authorization": f"Bearer nova_{number}"}) for number in range(20)]
        statuses = [answer.status_code for answer in await asyncio.gather(*tries)]
    # As many as the permits may be under way when the last one fails.
    assert statuses.count(429) >= 11
    assert statuses.count(401) >= 5
    async with _client(api, known, guesser) as client:
        assert (await client.get("/v1/tenant")).status_code == 200, "a key that is in use stays so"
    async with _client(api, unknown, guesser) as client:
        refused = await client.get("/v1/tenant")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_failed_keys")
    async with _client(api, unknown, next(_addresses)) as client:
        assert (await client.get("/v1/tenant")).status_code == 200, "another address is not concerned"


@proves("security.rates")
async def test_only_configured_proxies_name_the_address_of_a_client(api: Api) -> None:
    transport = httpx2.AsyncHTTPTransport(
        local_address=next(_hosts), limits=httpx2.Limits(max_connections=4), verify=False
    )
    async with httpx2.AsyncClient(transport=transport, base_url=api.url, timeout=60) as client:
        calls = [client.get("/healthz", headers={"x-forwarded-for": next(_addresses)}) for _ in range(150)]
        answers = await asyncio.gather(*calls)
    assert 429 in {answer.status_code for answer in answers}


_serves: ContextVar[bytes] = ContextVar("serves", default=b"nothing")


async def _tell_context(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        scope["state"]["connections"] = ConnectionLimits(ApiSettings(), TrustedProxies(()), answer=problem_response)
        for _ in range(2):
            await send({"type": (await receive())["type"] + ".complete"})
        return
    before = _serves.get()
    _serves.set(scope["path"].encode())
    await asyncio.sleep(0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(before))]})
    await send({"type": "http.response.body", "body": before})


@proves("security.keys")
async def test_a_request_that_is_sent_before_the_answer_to_another_begins_in_no_context_of_it() -> None:
    async with serving(_tell_context, http=GuardedProtocol) as url, asyncio.timeout(60):
        port = urlsplit(url).port
        assert port is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"GET /one HTTP/1.1\r\nhost: [::1]\r\n\r\nGET /two HTTP/1.1\r\nhost: [::1]\r\nconnection: close\r\n\r\n"
        )
        answers = await reader.read()
        writer.close()
    assert answers.count(b"nothing") == 2, answers


@proves("security.shares")
async def test_exports_that_are_not_read_leave_the_api_to_others_and_end_by_their_deadline(api: LimitedApi) -> None:
    tenant, other = await make_tenant(api.owner), await _tenant(api)
    await api.owner.execute(_MANY_NOTES, tenant_id=tenant.id)
    unread = [_unread_export(api, tenant.key) for _ in range(13)]
    try:
        async with _client(api, tenant.key, next(_addresses)) as client:

            async def refused() -> httpx2.Response | None:
                answer = await client.get("/v1/export")
                return answer if answer.status_code == 429 else None

            async def exported() -> bool:
                return (await client.get("/v1/export")).status_code == 200

            told = await until(refused, "an export to be under way")
            assert told is not None
            assert told.json()["code"] == "too_many_archives"
            async with _client(api, other, next(_addresses)) as stranger, asyncio.timeout(60):
                assert (await stranger.get("/v1/notes")).status_code == 200
            await pass_time(_LATE_S + 1)
            await until(exported, "the first export to be ended")
    finally:
        for connection in unread:
            connection.close()


@proves("security.shares")
async def test_an_import_that_does_not_arrive_is_cut_off_and_imports_nothing(api: LimitedApi) -> None:
    tenant = await _tenant(api)
    async with _connected(api) as (reader, writer):
        about = {"content_type": "application/x-ndjson", "transfer_encoding": "chunked"}
        writer.write(_head(api, "POST", "/v1/import", key=False, authorization=f"Bearer {tenant}", **about))
        await pass_time(_LATE_S + 1)
        async with asyncio.timeout(60):
            told = await reader.readuntil(b"}")
    assert told.startswith(b"HTTP/1.1 408 ")


@proves("security.shares")
async def test_requests_of_one_tenant_that_wait_in_the_database_leave_connections_to_others(api: LimitedApi) -> None:
    tenant, other = await _tenant(api), await _tenant(api)
    locking = PostgresDatabase(api.state.services.settings.require_database_url(), pool_size=1)
    async with locking.transaction() as holder:
        await holder.execute("LOCK TABLE notes IN ACCESS EXCLUSIVE MODE")
        held = [asyncio.create_task(api.http.get("/v1/notes", headers=_as(tenant, "203.0.114.1"))) for _ in range(20)]
        await until(lambda: _waiting_for_locks(holder, 8), "the tenant's share of connections to be in use")
        async with _client(api, other, next(_addresses)) as client, asyncio.timeout(60):
            assert (await client.get("/v1/tenant")).status_code == 200
    await locking.close()
    assert {answer.status_code for answer in await asyncio.gather(*held)} == {200}


_MANY_NOTES = """
INSERT INTO notes (id, tenant_id, agent_id, title, content)
SELECT 'not_' || lpad(n::text, 26, '0'), :tenant_id, 'nova', 'long', repeat(md5(n::text), 30000)
  FROM generate_series(1, 24) n
"""

_WAITING = """
SELECT count(*) FROM pg_locks
 WHERE NOT granted AND relation = 'notes'::regclass
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


async def _waiting_for_locks(connection: Connection, count: int) -> bool:
    return await connection.fetchval(_WAITING) >= count


def _unread_export(api: Api, key: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.connect(("127.0.0.1", urlsplit(api.url).port or 0))
    about = f"authorization: Bearer {key}\r\nx-forwarded-for: 203.0.113.250\r\nhost: localhost\r\n"
    connection.sendall(f"GET /v1/export HTTP/1.1\r\n{about}\r\n".encode())
    return connection


async def _drip(writer: asyncio.StreamWriter, piece: bytes) -> None:
    ticks = asyncio.Event()
    while True:
        writer.write(piece)
        await writer.drain()
        asyncio.get_running_loop().call_later(0.05, ticks.set)
        await ticks.wait()
        ticks.clear()


@asynccontextmanager
async def _held(api: Api, host: str, count: int) -> AsyncGenerator[list[socket.socket]]:
    """Hold connections from an address."""
    port = urlsplit(api.url).port
    held = [socket.create_connection(("127.0.0.1", port or 0), source_address=(host, 0)) for _ in range(count)]
    try:
        yield held
    finally:
        for connection in held:
            connection.close()
        await until(lambda: _none_open(api, host))


async def _none_open(api: Api, host: str) -> bool:
    async with _connected(api, host) as (reader, writer):
        writer.write(_head(api, "GET", "/healthz", connection="close"))
        return (await reader.read()).startswith(b"HTTP/1.1 200")


async def _tenant(api: LimitedApi) -> str:
    return (await make_tenant(api.owner)).key


def _as(key: str, address: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", "x-forwarded-for": address}
