"""The console before a real API on a real database; and a browser's part of HTTP: cookies, and a form's origin."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import pytest
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from nova_workers.base.config import Settings
from nova_workers.base.http_server.connections import GuardedProtocol
from nova_workers.console.app import build_console
from nova_workers.console.state import ConsoleState
from tests.integration.api.conftest import (
    Api,
    api,
    behind_shared_servers,
    other_tenant,
    own_api,
    own_other_tenant,
    own_tenant,
    own_worker,
    serve,
    shared,
    shared_api,
    shared_api_url,
    shared_worker,
    shares,
    tenant,
    worker,
)
from tests.integration.api.shared_servers import SharedServers
from tests.support.servers.asgi import serving

__all__ = [
    "api",
    "behind_shared_servers",
    "other_tenant",
    "own_api",
    "own_other_tenant",
    "own_tenant",
    "own_worker",
    "serve",
    "shared",
    "shared_api",
    "shared_api_url",
    "shared_worker",
    "tenant",
    "worker",
]


@dataclass
class Console:
    """A served console, and browsers for it."""

    url: str
    its_state: ConsoleState | None
    api: Api

    @property
    def state(self) -> ConsoleState:
        """The state of a console of the test's own."""
        assert self.its_state is not None, "this console is shared: ask for `own_console`"
        return self.its_state

    def browser(self) -> httpx2.AsyncClient:
        """Return a browser without a session; its forms come from the console's own pages."""
        return httpx2.AsyncClient(
            base_url=self.url, headers={"Sec-Fetch-Site": "same-origin"}, timeout=60, verify=False
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
async def own_console(
    settings: Settings, own_api: Api, compiled_templates: CompiledTemplates
) -> AsyncGenerator[Console]:
    """A console of the test's own, which signs in with the key of the test's tenant."""
    app = build_console(settings, api_url=own_api.url, login_key=own_api.tenant.key)
    app.state.console.templates.bytecode_cache = compiled_templates
    async with serving(app, patient=True, http=GuardedProtocol) as url:
        yield Console(url, app.state.console, own_api)


@pytest.fixture(scope="module")
def shared_console_url(shared: SharedServers, shared_api_url: str, compiled_templates: CompiledTemplates) -> str:
    """URL of the console that tests of a module share."""
    app = build_console(shared.settings, api_url=shared_api_url)
    app.state.console.templates.bytecode_cache = compiled_templates
    return shared.enter(serving(app, patient=True, http=GuardedProtocol))


@pytest.fixture
def console(request: pytest.FixtureRequest) -> Console:
    """The console of `api`: shared, or of the test's own."""
    if shares(request):
        return Console(request.getfixturevalue("shared_console_url"), None, request.getfixturevalue("shared_api"))
    return request.getfixturevalue("own_console")


@pytest.fixture
async def browser(console: Console) -> AsyncGenerator[httpx2.AsyncClient]:
    """A browser that is signed in as the tenant."""
    async with console.signed_in(console.api.tenant.key) as browser:
        yield browser
