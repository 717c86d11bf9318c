"""The API under a real server on loopback, in the test's own loop; and a worker that a test drives by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import httpx2
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from structlog.testing import capture_logs

from api.app import build_app
from api.state import ApiState
from nova_workers.clock import SystemClock
from nova_workers.config import Settings
from nova_workers.http_server.connections import GuardedProtocol
from nova_workers.ledger.database import Database
from nova_workers.ledger.visibility import see_tenant
from nova_workers.streams.publisher import EventPublisher
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant
from tests.support.servers.asgi import serving


class Api:
    """A served application and a client of it, with the key of one tenant."""

    def __init__(self, url: str, state: ApiState, tenant: Tenant) -> None:
        self.url = url
        self._state = state
        self.tenant = tenant
        self.http = self.client(tenant.key)

    @property
    def state(self) -> ApiState:
        """The application's state. The test's own statements through it are the tenant's, as those of a request are.

        Raises:
            RuntimeError: Not in a task: the binding would outlive the test.
        """
        asyncio.get_running_loop()
        see_tenant(self.tenant.id)
        return self._state

    def client(self, key: str | None) -> httpx2.AsyncClient:
        """Return a client with another key, or with none."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        # Nothing here speaks TLS, and reading the authorities' certificates takes 25 ms a client.
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=20, verify=False)

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


@pytest.fixture(autouse=True)
def without_rehearsals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let applications rehearse no messages: tests count what is open. Those of warming rehearse."""

    async def nothing(_: FastAPI) -> None:
        pass

    monkeypatch.setattr("api.app.rehearse_messages", nothing)


@asynccontextmanager
async def served(settings: Settings) -> AsyncGenerator[tuple[str, ApiState]]:
    """Serve an application on a free port of loopback."""
    app = build_app(settings)
    async with serving(app, patient=True, http=GuardedProtocol) as url:
        yield url, app.state.nova
        # The same as the signal, without a signal: the test runner would get it too.
        app.state.nova.watch.close()


@pytest.fixture
async def tenant(database: Database) -> Tenant:
    """A tenant with the default agents and a key with every scope."""
    return await make_tenant(database)


@pytest.fixture
async def other_tenant(database: Database) -> Tenant:
    """Another tenant, likewise."""
    return await make_tenant(database)


class Serve(Protocol):
    """Serves an application with settings of the test's own."""

    async def __call__(self, settings: Settings) -> Api:
        """Start it; it is stopped after the test."""
        ...


@pytest.fixture
async def serve(tenant: Tenant) -> AsyncGenerator[Serve]:
    """Serve an application with settings of the test's own; stopped after the test."""
    async with AsyncExitStack() as stack:

        async def start(settings: Settings) -> Api:
            url, state = await stack.enter_async_context(served(settings))
            api = Api(url, state, tenant)
            await stack.enter_async_context(api.http)
            return api

        yield start


@pytest.fixture
async def api(settings: Settings, tenant: Tenant) -> AsyncGenerator[Api]:
    """The API with default settings, but for the model of searches, which takes a second to start."""
    effects = settings.effects.model_copy(update={"embedding_provider": "off"})
    async with served(settings.model_copy(update={"effects": effects})) as (url, state):
        api = Api(url, state, tenant)
        async with api.http:
            yield api


@pytest.fixture
async def worker(database: Database, redis: Redis) -> AsyncGenerator[ManualWorker]:
    """A worker that does one operation on runs at a time."""
    publisher = EventPublisher(redis, flush_ms=0, clock=SystemClock())
    sending = asyncio.create_task(publisher.run())
    yield ManualWorker(database, publisher)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """Logged events with their fields."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def openapi(settings: Settings) -> dict[str, Any]:
    """The OpenAPI document."""
    return build_app(settings).openapi()
