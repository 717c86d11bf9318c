"""A provider that refuses the key: console, command line and stream say so at once, and nothing is lost by waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from nova_workers.base.config import Settings
from nova_workers.client import NovaClient
from nova_workers.console.app import build_console
from nova_workers.contracts.events import ProviderUnavailable
from nova_workers.contracts.http.wire import StatelessRunCreate
from tests.chaos.conftest import env
from tests.integration.console.browser.conftest import LOOP, signed_in
from tests.requirements import proves
from tests.support.processes.command_line import Nova
from tests.support.processes.fleet import Fleet
from tests.support.servers.asgi import serving
from tests.support.servers.model_server import ModelServer, Part, Status, Stream, model_server
from tests.support.waiting import until

__all__ = ["env"]

pytestmark = pytest.mark.fleet


@dataclass
class Newcomer:
    """A page, a command line and a client before a fleet whose provider refuses the key."""

    page: Page
    nova: Nova
    fleet: Fleet
    provider: ModelServer


@pytest_asyncio.fixture(loop_scope=LOOP)
async def newcomer(
    chromium: Browser, settings: Settings, env: dict[str, str], tmp_path: Path
) -> AsyncGenerator[Newcomer]:
    """A fleet with a wrong key."""
    async with model_server() as provider:
        provider.reply(Status(401, "authentication_error", "invalid x-api-key"))
        more = {
            "NOVA_DEFAULT_ENGINE": "anthropic",
            "NOVA_MODEL__BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": "sk-ant-wrong",
        }
        async with Fleet({**env, **more}, beat=True) as fleet:
            app = build_console(settings, api_url=fleet.api_url)
            nova = Nova({"NOVA_HOME": str(tmp_path), "NOVA_API_URL": fleet.api_url, "NOVA_API_KEY": fleet.api_key})
            async with serving(app, patient=True) as url, signed_in(chromium, url, fleet.api_key) as page:
                yield Newcomer(page, nova, fleet, provider)


@proves("runs.holds")
async def test_a_wrong_key_is_named_where_an_author_waits_and_all_go_on_once_it_is_right(newcomer: Newcomer) -> None:
    page, client, provider = newcomer.page, newcomer.fleet.client, newcomer.provider
    await page.goto("/chat")
    await page.get_by_label("Message", exact=True).fill("one")
    await page.keyboard.press("Enter")
    banner = page.locator("#chat-queue .banner")
    await expect(banner).to_contain_text("invalid x-api-key", timeout=60_000)
    await expect(banner).to_contain_text("Give the workers a valid key")

    with newcomer.nova.child("send", "two") as sent:
        async with aclosing(client.runs.stream(StatelessRunCreate(message="three"))) as events:
            event = await anext(event async for _, event in events if isinstance(event, ProviderUnavailable))
        assert (event.reason, event.provider, event.profile, event.held) == (
            "key_refused",
            "anthropic",
            "default",
            True,
        )
        await until(lambda: _are_held(client, 3), "all three are held")
        await asyncio.to_thread(sent.notes, "⏸ waiting: ")

        provider.reply(Stream((Part("text", ["Well done"]),)))
        await client.fleet.clear_providers()
        done = await asyncio.to_thread(sent.done, 60)
    assert done.code == 0, done
    assert "Well done" in done.out
    await expect(page.locator(".turn-foot")).to_be_visible(timeout=60_000)
    await expect(banner).to_have_count(0)


async def _are_held(client: NovaClient, number: int) -> bool:
    runs = (await client.runs.list(status="queued")).items
    return [run.hold.outage for run in runs if run.hold is not None] == ["key_refused"] * number
