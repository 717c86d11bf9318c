"""Webhooks in the console: secrets that are shown once, deliveries, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx2
import pytest

from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, served
from tests.integration.api.manual_worker import Tenant
from tests.integration.delivery.conftest import delivery_settings, receiving

__all__ = ["delivery_settings", "receiving"]


@pytest.fixture
async def own_api(delivery_settings: Settings, own_tenant: Tenant) -> AsyncGenerator[Api]:
    """The API of a fleet that has a master key."""
    async with served(delivery_settings) as (url, state):
        api = Api(url, state, own_tenant)
        async with api.http:
            yield api


@pytest.mark.usefixtures("own_console")
async def test_a_webhooks_secret_is_shown_once_and_its_deliveries_are_listed(
    browser: httpx2.AsyncClient, database: Database
) -> None:
    assert "nova webhooks create" in (await browser.get("/webhooks")).text
    made = (await browser.post("/webhooks/new", data={"url": "https://example.org/hook", "enabled": "on"})).text
    secret = made.partition("whsec_")[2].partition("<")[0]
    assert secret
    address = made.partition('class="button primary" href="')[2].partition('"')[0]
    await browser.post(f"{address}/test")
    page = (await browser.get(address)).text
    assert secret not in page
    assert "pending" in page
    replay = page.partition('id="row-')[2].partition('"')[0]
    assert (await browser.post(f"{address}/deliveries/{replay}/replay")).headers["location"] == address
    assert f"The delivery &#39;{replay}&#39;" in (await browser.get(address)).text
    refused = await browser.post(f"{address}/edit", data={"url": "ftp://example.org"})
    assert refused.status_code == 422
    await database.execute("UPDATE deliveries SET error = 'It did not answer.', due_at = now() + interval '1 hour'")
    assert "Send now" in (await browser.get(address)).text
    await browser.post(f"{address}/deliveries/{replay}/replay")
    assert "Send now" not in (await browser.get(address)).text
    rests = "UPDATE webhooks SET failures = 3, failing_since = now(), rests_until = now() + interval '5 minutes'"
    await database.execute(rests)
    assert "resting" in (await browser.get("/webhooks")).text
    assert "it rests" in (await browser.get(address)).text
    await browser.post(f"{address}/retry")
    same = {"url": "https://example.org/hook", "enabled": "on", "description": "Mine"}
    await browser.post(f"{address}/edit", data=same)
    assert "3 failures in a row" in (await browser.get(address)).text
    await browser.post(f"{address}/edit", data={"url": "https://example.org/hook", "description": "Mine"})
    assert "Disabled" in (await browser.get(address)).text
    await browser.post(f"{address}/enable")
    assert "whsec_" in (await browser.post(f"{address}/rotate")).text
    await browser.post(f"{address}/delete")
    assert (await browser.get(address)).status_code == 404
