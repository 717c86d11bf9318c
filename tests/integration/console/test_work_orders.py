"""Work orders in the console."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import httpx2
import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, served
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.integration.api.orders.conftest import MASTER_KEY, answering_worker, order_of, valid_order
from tests.integration.console.conftest import Console
from tests.support.browser_forms import fields_of
from tests.support.harness.orders import proposal

_FAQ = {
    "type": "object",
    "properties": {
        "questions": {
            "type": "array",
            "items": {"type": "object", "properties": {"q": {"type": "string"}, "isOpen": {"type": "boolean"}}},
        }
    },
}


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


@pytest.mark.usefixtures("own_console")
async def test_a_person_edits_a_proposal_in_the_fields_of_its_kind(
    console: Console, browser: httpx2.AsyncClient, database: Database, redis: Redis
) -> None:
    api = console.api
    secret = (await api.http.post("/v1/work-order-secrets", json={})).json()["secret"]
    async with answering_worker(api, database, redis) as engine:
        engine.answers = {"craft": proposal("Unsure", 0.2)}
        sent = await api.http.post("/v1/work-orders", json=await order_of(api, secret))
        # Of a kind whose schema only the policy has.
        own = {"version": "2", "produces": "faq_v1", "artifactKinds": {"faq_v1": _FAQ}}
        engine.answers = {"craft": json.dumps({"questions": [{"q": "Why?", "isOpen": True}]})}
        other = await api.http.post("/v1/work-orders", json=await order_of(api, secret, of_policy=own))
    faq = (await browser.get(f"/work-orders/{other.json()['traceId']}")).text
    assert ("payload.questions.0.isOpen", ["yes"]) in fields_of(faq, "payload-form").items()
    added = await browser.post(
        f"/work-orders/{other.json()['traceId']}/review", data={"verdict": "edit", "do": "add:payload.questions"}
    )
    assert added.status_code == 200
    assert "payload.questions.0.q" in fields_of(added.text, "payload-form")
    path = f"/work-orders/{sent.json()['traceId']}"
    page = (await browser.get(path)).text
    assert ">Target key<" in page.replace(' <span class="muted">required</span>', "<")
    fields = dict(fields_of(page, "payload-form"))
    assert fields["payload.value"] == ["Unsure"], "text, and no JSON of it"
    given = {name: values[-1] for name, values in fields.items()}
    doubled = await browser.post(f"{path}/review", data={**given, "payload.confidence": "2"})
    assert doubled.status_code == 422
    assert "does not fulfil the schema" in doubled.text
    assert dict(fields_of(doubled.text, "payload-form"))["payload.confidence"] == ["2"]
    decided = await browser.post(f"{path}/review", data={**given, "payload.value": "A sure\nheadline"})
    assert decided.headers["location"].endswith(path)
    result = (await api.http.get(f"/v1{path}")).json()
    assert (result["stopReason"], result["artifacts"][0]["payload"]) == (
        "ok",
        {**json.loads(proposal("A sure\nheadline", 0.2))},
    )
    assert "payload-form" not in (await browser.get(path)).text
