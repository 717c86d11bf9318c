"""The console before a real API on a real database; and a browser's part of HTTP: cookies, and a form's origin."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import pytest

from nova_workers.config import Settings
from nova_workers.console.app import build_console
from nova_workers.console.state import ConsoleState
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, served
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.support.servers.asgi import serving


@dataclass
class Console:
    """A served console, and browsers for it."""

    url: str
    state: ConsoleState
    api: Api

    def browser(self) -> httpx2.AsyncClient:
        """Return a browser without a session; its forms come from the console's own pages."""
        return httpx2.AsyncClient(
            base_url=self.url, headers={"Sec-Fetch-Site": "same-origin"}, timeout=20, verify=False
        )

    @asynccontextmanager
    async def signed_in(self, key: str) -> AsyncGenerator[httpx2.AsyncClient]:
        """Give a browser that signed in with a key."""
        async with self.browser() as browser:
            answer = await browser.post("/login", data={"key": key})
            assert answer.status_code == 303, answer.text
            yield browser


@pytest.fixture
async def tenant(database: Database) -> Tenant:
    """A tenant with the default agents and a key with every scope."""
    return await make_tenant(database)


@pytest.fixture
async def other_tenant(database: Database) -> Tenant:
    """Another tenant, likewise."""
    return await make_tenant(database)


@pytest.fixture
async def api(settings: Settings, tenant: Tenant) -> AsyncGenerator[Api]:
    """The API, and a client with the tenant's key to prepare what pages show."""
    async with served(settings) as (url, state):
        api = Api(url, state, tenant)
        async with api.http:
            yield api


@pytest.fixture
async def console(settings: Settings, api: Api) -> AsyncGenerator[Console]:
    """The console of that API."""
    app = build_console(settings, api_url=api.url, login_key=api.tenant.key)
    async with serving(app, patient=True) as url:
        yield Console(url, app.state.console, api)


@pytest.fixture
async def browser(console: Console) -> AsyncGenerator[httpx2.AsyncClient]:
    """A browser that is signed in as the tenant."""
    async with console.signed_in(console.api.tenant.key) as browser:
        yield browser
