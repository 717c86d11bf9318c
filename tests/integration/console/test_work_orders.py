"""Work orders in the console."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx2
import pytest

from nova_workers.base.config import Settings
from tests.integration.api.conftest import Api, served
from tests.integration.api.manual_worker import Tenant, make_tenant
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
    audited = {"customerTrailOn": True, "internalTrailOn": True}
    order = valid_order(console.api.tenant.id, secret, audit=audited)
    sent = await console.api.http.post("/v1/work-orders", json=order, headers={"Prefer": "respond-async"})
    trace_id = sent.json()["traceId"]
    listed = (await browser.get("/work-orders?state=running")).text
    assert trace_id in listed
    assert "butler_basic" in listed
    database, path = console.api.state.services.database, f"/work-orders/{trace_id}"
    running = (await browser.get(path)).text
    assert "in_progress" in running
    assert "Its agents are at work." in running, running.partition("<main")[2][:3000]
    await database.execute(
        "UPDATE work_order_parts SET used_usd = 0.0125, lost_usd = 0.25, used_tokens = 900, calls = 2, model = 'sonnet'"
    )
    page = (await browser.get(path)).text
    part, _ = (await console.api.http.get(f"/v1{path}/parts")).json()["items"]
    assert (part["run_status"], part["stop_reason"]) == ("queued", None)
    assert f'<a href="/runs/{part["run_id"]}">' in page
    assert "<dd>$0.53</dd>" in page
    assert "accepted" in page
    assert "keyHash" in page, "the internal trail"
    limited = await make_tenant(database, ("runs",), console.api.tenant.id)
    async with console.signed_in(limited.key) as customer:
        seen = await customer.get(path)
        assert (seen.status_code, "keyHash" in seen.text, "$0.53" in seen.text) == (200, False, False)
        assert "accepted" in seen.text
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
    async with Api(console.api.url, console.api.state, other_tenant).http as others:
        assert (await others.get(f"/v1/work-orders/{trace_id}/parts")).status_code == 404
