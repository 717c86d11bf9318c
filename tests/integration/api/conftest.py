"""The API under a real server on loopback, and a worker that a test drives by hand.

Tests that ask for nothing but `api` and tenants share an application with their module, each with a tenant of its own.
A test that also asks for `database`, `redis`, `settings` or `logs`, or for `own_api`, has one in its own loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol
from unittest import mock

import httpx2
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from structlog.testing import capture_logs

from api.app import build_app
from api.state import ApiState
from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.http_server.connections import GuardedProtocol
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.ledger.database import Database, PostgresDatabase
from nova_workers.ledger.visibility import see_tenant
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant
from tests.integration.api.shared_servers import SharedServers, shared_servers
from tests.support.data.idle_api import idle_api
from tests.support.harness.warm_sessions import warm_sessions
from tests.support.servers.asgi import serving
from tests.support.servers.databases import client_of, create_database, own_valkey

_BEHIND_THE_API = frozenset({"database", "redis", "settings", "logs"})
_WITHOUT_MODEL = {"embedding_provider": "off"}
"""The model of searches takes a second to start."""


class Api:
    """A served application and a client of it, with the key of one tenant."""

    def __init__(self, url: str, behind: ApiState | SharedServers, tenant: Tenant) -> None:
        self.url = url
        self._behind = behind
        self.tenant = tenant
        self.http = self.client(tenant.key)

    @property
    def state(self) -> ApiState:
        """The application's state. The test's own statements through it are the tenant's, as those of a request are.

        Raises:
            RuntimeError: Not in a task: the binding would outlive the test.
        """
        assert isinstance(self._behind, ApiState), "this application is shared: ask for `own_api`"
        asyncio.get_running_loop()
        see_tenant(self.tenant.id)
        return self._behind

    async def fetchval(self, statement: str, **values: object) -> Any:
        """Return a value from the database of an application that is shared."""
        assert isinstance(self._behind, SharedServers), "this application is not shared: ask for `database`"
        return await asyncio.wrap_future(self._behind.begin(self._behind.database.fetchval(statement, **values)))

    async def count(self, table: str) -> int:
        """Return how many rows the tenant has in a table behind an application that is shared."""
        return await self.fetchval(
            f"SELECT count(*) FROM {table} WHERE tenant_id = :tenant_id", tenant_id=self.tenant.id
        )

    def client(self, key: str | None) -> httpx2.AsyncClient:
        """Return a client with another key, or with none."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        # Nothing here speaks TLS, and reading the authorities' certificates takes 25 ms a client.
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=60, verify=False)

    async def thread(self, **fields: object) -> str:
        """Make a thread and return its id."""
        answer = await self.http.post("/v1/threads", json=fields)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    async def run(self, thread_id: str, message: str = "hello", **fields: object) -> str:
        """Send a message and return its run's id."""
        answer = await self.http.post(f"/v1/threads/{thread_id}/runs", json={"message": message, **fields})
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]


async def _no_rehearsal(_: FastAPI) -> None:
    """Stand in for the rehearsal of messages: tests count what is open."""


@pytest.fixture(autouse=True)
def without_rehearsals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let applications rehearse no messages. Those of warming rehearse."""
    monkeypatch.setattr("api.app.rehearse_messages", _no_rehearsal)


@asynccontextmanager
async def served(settings: Settings) -> AsyncGenerator[tuple[str, ApiState]]:
    """Serve an application on a free port of loopback."""
    app = build_app(settings)
    async with serving(app, patient=True, http=GuardedProtocol) as url:
        yield url, app.state.nova
        # The same as the signal, without a signal: the test runner would get it too.
        app.state.nova.watch.close()
        app.state.nova.change_follower.close()


def shares(request: pytest.FixtureRequest) -> bool:
    """Return whether the test shares an application: it asks for nothing that lies behind one."""
    return _BEHIND_THE_API.isdisjoint(request.fixturenames) and "own_api" not in request.fixturenames


@pytest.fixture(scope="session")
def behind_shared_servers(postgres_url_admin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of what all shared applications of this test worker have behind them."""
    database_url = asyncio.run(create_database(postgres_url_admin))
    with own_valkey() as redis_url, warm_sessions.of(database_url):
        home = tmp_path_factory.mktemp("shared")
        yield Settings.model_validate(
            {"database_url": database_url, "redis_url": redis_url, "home": home, "effects": _WITHOUT_MODEL}
        )


@pytest.fixture(scope="module")
def shared(behind_shared_servers: Settings) -> Iterator[SharedServers]:
    """The applications that tests of a module share."""
    with shared_servers(behind_shared_servers) as servers:
        yield servers


@pytest.fixture(scope="module")
def shared_api_url(shared: SharedServers) -> str:
    """URL of the API that tests of a module share."""
    with mock.patch("api.app.rehearse_messages", _no_rehearsal):
        return shared.enter(served(shared.settings))[0]


@pytest.fixture
async def shared_api(shared: SharedServers, shared_api_url: str) -> AsyncGenerator[Api]:
    """The module's API, with a tenant of the test's own."""
    api = Api(shared_api_url, shared, shared.make_tenant())
    async with api.http:
        yield api


@pytest.fixture
async def own_tenant(database: Database) -> Tenant:
    """A tenant of the test's own database."""
    return await make_tenant(database)


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> Tenant:
    """A tenant with the default agents and a key with every scope."""
    if shares(request):
        return request.getfixturevalue("shared_api").tenant
    return request.getfixturevalue("own_tenant")


@pytest.fixture
async def own_other_tenant(database: Database) -> Tenant:
    """Another tenant of the test's own database."""
    return await make_tenant(database)


@pytest.fixture
def other_tenant(request: pytest.FixtureRequest) -> Tenant:
    """Another tenant, likewise."""
    if shares(request):
        return request.getfixturevalue("shared").make_tenant()
    return request.getfixturevalue("own_other_tenant")


class Serve(Protocol):
    """Serves an application with settings of the test's own."""

    async def __call__(self, settings: Settings) -> Api:
        """Start it; it is stopped after the test."""
        ...


@pytest.fixture
async def serve(own_tenant: Tenant) -> AsyncGenerator[Serve]:
    """Serve an application with settings of the test's own; stopped after the test."""
    async with AsyncExitStack() as stack:

        async def start(settings: Settings) -> Api:
            url, state = await stack.enter_async_context(served(settings))
            api = Api(url, state, own_tenant)
            await stack.enter_async_context(api.http)
            return api

        yield start


@pytest.fixture
async def own_api(settings: Settings, own_tenant: Tenant) -> AsyncGenerator[Api]:
    """An API of the test's own, with default settings, but for the model of searches."""
    effects = settings.effects.model_copy(update=_WITHOUT_MODEL)
    async with served(settings.model_copy(update={"effects": effects})) as (url, state):
        api = Api(url, state, own_tenant)
        async with api.http:
            yield api


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Api:
    """The API with default settings: shared, or of the test's own."""
    return request.getfixturevalue("shared_api" if shares(request) else "own_api")


@asynccontextmanager
async def working(database: Database, redis: Redis) -> AsyncGenerator[ManualWorker]:
    """Give a worker that does one operation on runs at a time."""
    publisher = EventPublisher(redis, flush_ms=0, clock=SystemClock())
    sending = asyncio.create_task(publisher.run())
    yield ManualWorker(database, publisher)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)


@asynccontextmanager
async def working_for(settings: Settings) -> AsyncGenerator[ManualWorker]:
    """Give a worker on the servers of these settings."""
    database = PostgresDatabase(settings.require_database_url(), pool_size=2)
    async with client_of(settings.require_redis_url()) as redis, working(database, redis) as worker:
        yield worker
    await database.close()


@pytest.fixture
async def own_worker(database: Database, redis: Redis) -> AsyncGenerator[ManualWorker]:
    """A worker on the test's own servers."""
    async with working(database, redis) as worker:
        yield worker


@pytest.fixture
async def shared_worker(shared: SharedServers) -> AsyncGenerator[ManualWorker]:
    """A worker on the servers behind the applications that are shared."""
    async with working_for(shared.settings) as worker:
        yield worker


@pytest.fixture
def worker(request: pytest.FixtureRequest) -> ManualWorker:
    """A worker that does one operation on runs at a time."""
    return request.getfixturevalue("shared_worker" if shares(request) else "own_worker")


@pytest.fixture(autouse=True)
def captured_logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """Keep logs off the test's output."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def logs(captured_logs: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    """Logged events with their fields."""
    return captured_logs


@pytest.fixture(scope="session")
def openapi() -> dict[str, Any]:
    """The OpenAPI document."""
    return idle_api().openapi()
