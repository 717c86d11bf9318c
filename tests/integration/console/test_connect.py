"""The page Connect: for the signed-in key and a chosen agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from html import unescape

import httpx2
import pytest

from nova_workers.base.config import Settings
from nova_workers.console.app import build_console
from nova_workers.console.client_lines import CLIENTS
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import served
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.integration.console.conftest import CompiledTemplates, Console
from tests.support.servers.asgi import serving

_PUBLIC = "https://nova.example.org"


@pytest.fixture
async def behind_a_proxy(
    settings: Settings, console: Console, compiled_templates: CompiledTemplates
) -> AsyncGenerator[Console]:
    """A console before an API that has a public address and the door of OpenAI."""
    public = settings.api.model_copy(update={"public_url": _PUBLIC})
    async with served(settings.model_copy(update={"api": public, "doors": ("openai",)})) as (url, _):
        app = build_console(settings, api_url=url)
        app.state.console.templates.bytecode_cache = compiled_templates
        async with serving(app, patient=True) as console_url:
            yield Console(console_url, app.state.console, console.api)


async def test_it_has_the_lines_of_open_doors_and_says_how_others_are_opened(
    behind_a_proxy: Console, tenant: Tenant
) -> None:
    async with behind_a_proxy.signed_in(tenant.key) as browser:
        page = (await browser.get("/connect")).text
    assert tenant.key not in page
    for client in CLIENTS:
        shown = [f'data-copy="{lines.text(_PUBLIC, "nova")}"' in unescape(page) for lines in client.lines]
        assert shown == [client.door in {None, "openai"}] * len(client.lines), client.key
    assert """NOVA_DOORS='["mcp", "openai"]'""" in unescape(page)
    assert "NOVA_API__PUBLIC_URL" not in page


async def test_the_lines_are_those_of_the_chosen_agent_at_the_consoles_address(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    made = await console.api.http.post("/v1/agents", json={"id": "clerk", "name": "Clerk"})
    assert made.status_code == 201, made.text
    page = unescape((await browser.get("/connect?agent=clerk")).text)
    assert f"curl -sSN {console.api.url}/v1/runs/stream" in page
    assert '{"agent_id": "clerk", "message"' in page
    assert '<option value="clerk" selected>' in page
    assert "NOVA_API__PUBLIC_URL" in page


@pytest.mark.parametrize("agent", ["missing", "nova'; id; '", "nova\n", '"><script>', "no%2Fva"])
async def test_a_link_puts_nothing_but_an_agent_into_the_lines(agent: str, browser: httpx2.AsyncClient) -> None:
    answer = await browser.get("/connect", params={"agent": agent})
    assert answer.status_code == 404
    assert "curl" not in answer.text


async def test_a_key_without_the_scope_is_warned(console: Console, database: Database, tenant: Tenant) -> None:
    limited = await make_tenant(database, ("workspace",), tenant.id)
    async with console.signed_in(limited.key) as browser:
        page = (await browser.get("/connect?agent=any-agent")).text
    assert "lacks the scope <strong>runs</strong>" in page
    assert "any-agent" in page
    async with console.signed_in(tenant.key) as browser:
        assert "lacks the scope" not in (await browser.get("/connect")).text
