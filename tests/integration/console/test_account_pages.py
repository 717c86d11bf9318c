"""Keys, the tenant, the fleet and usage in the console."""

from __future__ import annotations

import httpx2
import orjson
import pytest
from redis.asyncio import Redis

from nova_workers.base import keys
from nova_workers.ledger.database import Database
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.integration.console.conftest import Console


@pytest.mark.parametrize("path", ["/keys", "/tenant", "/usage", "/fleet", "/audit", "/usage?by=agent&days=90"])
async def test_a_page_renders(path: str, browser: httpx2.AsyncClient) -> None:
    answer = await browser.get(path)
    assert answer.status_code == 200, answer.text


async def test_a_keys_secret_is_shown_once_and_the_key_is_revoked(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    made = (await browser.post("/keys", data={"name": "ci", "scopes": ["runs"]})).text
    secret = made.partition('data-copy="')[2].partition('"')[0]
    page = (await browser.get("/keys")).text
    assert secret not in page
    async with console.signed_in(secret) as limited:
        assert (await limited.get("/keys")).status_code == 403
    key_id = page.partition(">ci<")[2].partition('action="/keys/')[2].partition("/")[0]
    await browser.post(f"/keys/{key_id}/revoke")
    assert "revoked" in (await browser.get("/keys")).text
    refused = await browser.post("/keys", data={"name": "", "scopes": ["runs"]})
    assert refused.status_code == 422


async def test_a_key_of_a_role_is_bound_to_networks_and_rotated(console: Console, browser: httpx2.AsyncClient) -> None:
    given = {"name": "ann", "role": "viewer", "scopes": ["runs", "keys"], "networks": "127.0.0.0/8, ::1"}
    made = (await browser.post("/keys", data=given)).text
    secret = made.partition('data-copy="')[2].partition('"')[0]
    async with console.signed_in(secret) as viewer:
        for path in ("/", "/runs", "/chat", "/agents/nova", "/tasks", "/triggers", "/usage"):
            assert (await viewer.get(path)).status_code == 200, path
        assert (await viewer.get("/keys")).status_code == 403
    (key,) = [key for key in (await console.api.http.get("/v1/keys")).json()["items"] if key["name"] == "ann"]
    assert (key["role"], key["networks"]) == ("viewer", ["127.0.0.0/8", "::1/128"])
    rotated = await browser.post(f"/keys/{key['id']}/rotate", data={"overlap_s": "3600"})
    assert secret not in rotated.text
    assert 'data-copy="nova_' in rotated.text
    page = (await browser.get("/keys")).text
    assert "from 127.0.0.0/8, ::1/128" in page
    assert "replaced by ann" in page
    wrong = await browser.post("/keys", data={**given, "networks": "10.0.0.1/8"})
    assert wrong.status_code == 422
    assert "should be a network such as 10.0.0.0/8" in wrong.text


async def test_a_key_expires_at_a_local_time_of_the_chosen_zone(console: Console, browser: httpx2.AsyncClient) -> None:
    given = {"name": "ci", "scopes": ["runs"], "expires_at": "2031-01-01T00:00", "timezone": "America/New_York"}
    assert (await browser.post("/keys", data=given)).status_code == 200
    (made,) = [key for key in (await console.api.http.get("/v1/keys")).json()["items"] if key["name"] == "ci"]
    assert made["expires_at"] == "2031-01-01T05:00:00Z"
    skipped = await browser.post("/keys", data={**given, "expires_at": "2031-03-09T02:15"})
    assert skipped.status_code == 422
    assert "Clocks in America/New_York never show 2031-03-09 02:15" in skipped.text
    assert 'value="2031-03-09T02:15"' in skipped.text


async def test_the_audit_log_is_filtered_by_its_address_and_links_to_what_was_changed(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    for _ in range(51):
        await console.api.http.post("/v1/notes", json={"agent_id": "nova", "title": "a plan"})
    await console.api.http.patch("/v1/agents/nova", json={"description": "mine"})
    page = (await browser.get("/audit")).text
    rows = page.partition("<tbody>")[2]
    assert rows.index('title="agent.updated">Agent changed<') < rows.index('title="note.created">Note created<')
    assert 'href="/agents/nova"' in page
    assert "spec.description" in page
    assert f"actor={console.api.tenant.key_id}" in page
    assert "127.0.0.1" in page
    notes = (await browser.get("/audit?target_kind=note&action=note.created")).text
    assert "spec.description" not in notes
    older = notes.partition('href="/audit?target_kind=note&amp;action=note.created&amp;cursor=')[2].partition('"')[0]
    rest = await browser.get(f"/audit?target_kind=note&action=note.created&cursor={older}")
    assert rest.text.count('id="row-aud_') == 1
    assert "No record fits" in (await browser.get("/audit?until=2001-01-01T00:00")).text
    assert (await browser.get("/audit?since=lately")).status_code == 422


async def test_a_tenants_settings_are_changed_and_it_is_paused(browser: httpx2.AsyncClient) -> None:
    settings = {
        "timezone": "Europe/Berlin",
        "work_from": "8",
        "work_until": "18",
        "work_every_s": "600",
        "max_cost_usd_per_day": "12.5",
        "weight": "1",
        "max_running": "",
    }
    assert (await browser.post("/tenant", data=settings)).status_code == 303
    page = (await browser.get("/tenant")).text
    assert "Europe/Berlin" in page
    assert "$12.50" in page
    refused = await browser.post("/tenant", data={**settings, "timezone": "Mars/Olympus"})
    assert refused.status_code == 422
    assert "Mars/Olympus" in refused.text
    await browser.post("/tenant/pause", data={"reason": "inventory"})
    assert "inventory" in (await browser.get("/tenant")).text
    await browser.post("/tenant/resume", data={"scope": "tenant"})
    assert "inventory" not in (await browser.get("/tenant")).text


async def test_only_operators_see_tenants_and_pause_the_fleet(
    console: Console, database: Database, tenant: Tenant
) -> None:
    limited = await make_tenant(database, ("runs", "agents"), tenant.id)
    async with console.signed_in(limited.key) as browser:
        assert "Tenants" not in (await browser.get("/fleet")).text
        assert (await browser.post("/fleet/pause")).status_code == 403


async def test_a_worker_is_drained_by_a_button_that_says_what_happens(
    browser: httpx2.AsyncClient, redis: Redis
) -> None:
    worker_id = "wkr_console@host-a:7"
    record = {
        "id": worker_id, "host": "host-a", "pid": 7, "queues": ["of-console"], "slots": 8, "busy": 3,
        "draining": False, "seen_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    await redis.zadd(keys.workers_index(), {worker_id: 1})
    await redis.set(keys.worker_presence(worker_id), orjson.dumps(record))
    page = (await browser.get("/fleet")).text
    assert "No other worker takes runs of of-console" in page
    assert (await browser.post(f"/fleet/workers/{worker_id}/drain")).status_code == 303
    page = (await browser.get("/fleet")).text
    assert "begins within seconds" in page
    assert f"/fleet/workers/{worker_id}/drain" not in page
    await redis.set(keys.worker_presence(worker_id), orjson.dumps(record | {"draining": True}))
    assert "3 runs left" in (await browser.get("/fleet")).text
    await redis.delete(keys.worker_presence(worker_id))
    assert "host-a:7 drained" in (await browser.get("/fleet")).text


async def test_an_inbound_channel_that_rests_says_why_and_is_tried_by_a_button(
    browser: httpx2.AsyncClient, database: Database, tenant: Tenant
) -> None:
    await database.execute(
        "INSERT INTO leases (tenant_id, name, holder, fence, expires_at, error, failing_since, next_try_at)"
        " VALUES (:tenant_id, 'channel:telegram:42', 'a', 1, now() + interval '1 hour', 'It says <no>.', now(), now())",
        tenant_id=tenant.id,
    )
    assert (
        "The inbound channel telegram:42 rests after failures: It says &lt;no&gt;."
        in (await browser.get("/fleet")).text
    )
    assert (await browser.post("/fleet/channels/telegram:42/retry")).status_code == 303
    asked = "SELECT retry_requested_at IS NOT NULL FROM leases WHERE tenant_id = :tenant_id"
    assert await database.fetchval(asked, tenant_id=tenant.id)
    await database.execute("DELETE FROM leases WHERE tenant_id = :tenant_id", tenant_id=tenant.id)


async def test_a_failing_model_is_shown_to_operators_and_cleared(
    console: Console, browser: httpx2.AsyncClient, database: Database, tenant: Tenant, redis: Redis
) -> None:
    breaker, until_ms = keys.model_breaker("openai", "mistral/large"), 4_000_000_000_000
    fields = {"provider": "openai", "model": "mistral/large", "error": "answered <500>", "since": "1"}
    await redis.hset(breaker, mapping={**fields, "open_until": str(until_ms), "forget_at": str(until_ms)})
    await redis.zadd(keys.model_failures("openai", "mistral/large"), {"thr_bad": until_ms})
    await redis.zadd(keys.model_rests(), {breaker: until_ms})
    limited = await make_tenant(database, ("runs", "agents"), tenant.id)
    async with console.signed_in(limited.key) as other:
        assert "mistral/large" not in (await other.get("/fleet")).text
        assert (await other.post("/fleet/providers/clear")).status_code == 403
    page = (await browser.get("/fleet")).text
    assert "mistral/large" in page
    assert "thr_bad" in page
    assert "answered &lt;500&gt;" in page
    await browser.post("/fleet/providers/clear", data={"name": "mistral/large"})
    assert "mistral/large" not in (await browser.get("/fleet")).text
    assert not await redis.exists(breaker)


async def test_usage_is_downloaded_without_formulas(browser: httpx2.AsyncClient) -> None:
    answer = await browser.get("/usage.csv?by=model&days=7")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.text.startswith("model,runs,model_calls,input_tokens")
    assert (await browser.get("/usage?days=many")).status_code == 422


async def test_an_operator_sets_the_ceilings_of_a_tenant(browser: httpx2.AsyncClient, database: Database) -> None:
    other = await make_tenant(database)
    path = f"/fleet/tenants/{other.id}/ceilings"
    assert "Highest trust" in (await browser.get(path)).text.replace("The highest trust", "Highest trust")
    given = {"ceilings@on": "yes", "ceilings.trust": "unrestricted", "ceilings.directories": "/srv/acme\n/srv/other"}
    assert (await browser.post(path, data=given)).status_code == 303
    stored = await database.fetchval("SELECT ceilings FROM tenants WHERE id = :id", id=other.id)
    assert (stored["trust"], stored["directories"], stored["sandbox"]) == (
        "unrestricted",
        ["/srv/acme", "/srv/other"],
        False,
    )
    assert "/srv/other" in (await browser.get(path)).text
    refused = await browser.post(path, data={**given, "ceilings.directories": "srv"})
    assert refused.status_code == 422
