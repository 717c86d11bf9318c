"""The console before a real API on a real database; and a browser's part of HTTP: cookies, and a form's origin."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import pytest
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from nova_workers.config import Settings
from nova_workers.console.app import build_console
from nova_workers.console.state import ConsoleState
from nova_workers.http_server.connections import GuardedProtocol
from tests.integration.api.conftest import Api, api, other_tenant, tenant
from tests.support.servers.asgi import serving

__all__ = ["api", "other_tenant", "tenant"]


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


class CompiledTemplates(BytecodeCache):
    """Compiled templates of all consoles of a test process: compiling them takes longer than most tests."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill a template's bucket, if it was compiled."""
        if bucket.key in self._compiled:
            bucket.bytecode_from_string(self._compiled[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template that was compiled."""
        self._compiled[bucket.key] = bucket.bytecode_to_string()


@pytest.fixture(scope="session")
def compiled_templates() -> CompiledTemplates:
    """Compiled templates of all consoles."""
    return CompiledTemplates()


@pytest.fixture
async def console(settings: Settings, api: Api, compiled_templates: CompiledTemplates) -> AsyncGenerator[Console]:
    """The console of that API."""
    app = build_console(settings, api_url=api.url, login_key=api.tenant.key)
    app.state.console.templates.bytecode_cache = compiled_templates
    async with serving(app, patient=True, http=GuardedProtocol) as url:
        yield Console(url, app.state.console, api)


@pytest.fixture
async def browser(console: Console) -> AsyncGenerator[httpx2.AsyncClient]:
    """A browser that is signed in as the tenant."""
    async with console.signed_in(console.api.tenant.key) as browser:
        yield browser
