"""Work orders in the console."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx2
import pytest

from nova_workers.base.config import Settings
from tests.integration.api.conftest import Api, served
from tests.integration.api.manual_worker import Tenant
from tests.integration.api.orders.conftest import MASTER_KEY, valid_order
from tests.integration.console.conftest import Console


@pytest.fixture
async def own_api(settings: Settings, own_tenant: Tenant) -> AsyncGenerator[Api]:
    """The API of a fleet that has a master key."""
    keyed = Settings.model_validate({**settings.model_dump(), "secrets": {"keys": [MASTER_KEY]}})
    async with served(keyed) as (url, state):
        api = Api(url, state, own_tenant)
        async with api.http:
            yield api


@pytest.mark.usefixtures("own_console")
async def test_orders_are_listed_and_one_shows_its_result(
    console: Console, browser: httpx2.AsyncClient, other_tenant: Tenant
) -> None:
    assert "nova orders submit" in (await browser.get("/work-orders")).text
    secret = (await console.api.http.post("/v1/work-order-secrets", json={})).json()["secret"]
    order = valid_order(console.api.tenant.id, secret)
    sent = await console.api.http.post("/v1/work-orders", json=order, headers={"Prefer": "respond-async"})
    trace_id = sent.json()["traceId"]
    listed = (await browser.get("/work-orders?state=running")).text
    assert trace_id in listed
    assert "butler_basic" in listed
    assert "in_progress" in (await browser.get(f"/work-orders/{trace_id}")).text
    await console.api.state.services.database.execute(
        "UPDATE runs SET hold = 'provider', held_since = now(), held_until = now() + interval '7 seconds',"
        " hold_detail = :detail WHERE source = 'work_order'",
        detail={"provider": "anthropic", "outage": "quota", "message": "anthropic refuses the key: no credit."},
    )
    held = (await browser.get(f"/work-orders/{trace_id}")).text
    assert "anthropic refuses the key: no credit. Raise the limit" in held
    assert "Next try in 7 s." in held
    early = await browser.post(f"/work-orders/{trace_id}/review", data={"verdict": "approve"})
    assert 'class="banner bad"' in (await browser.get(early.headers["location"])).text
    assert (
        await browser.post(f"/work-orders/{trace_id}/review", data={"verdict": "edit", "payload": "{"})
    ).status_code == 422
    async with console.signed_in(other_tenant.key) as other:
        assert (await other.get(f"/work-orders/{trace_id}")).status_code == 404
