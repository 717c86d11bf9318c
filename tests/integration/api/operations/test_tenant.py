"""A tenant's settings and budgets over HTTP, and priorities of runs."""

from __future__ import annotations

from typing import Any

import pytest
from dirty_equals import IsPartialDict

from nova_workers.domain.keys.sql.keys import create_key
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant


async def _key(database: Database, tenant_id: str, *scopes: str) -> str:
    async with database.connection() as connection:
        return (await create_key(connection, tenant_id, name="some", scopes=scopes)).key


async def test_settings_are_read_and_changed_one_by_one(api: Api) -> None:
    before = (await api.http.get("/v1/tenant")).json()
    assert before == IsPartialDict(
        id=api.tenant.id, timezone="UTC", work_from=6, work_until=22, work_every_s=3600, weight=1, max_running=None,
        max_cost_usd_per_day=None,
    )  # fmt: skip
    change = {"timezone": "Europe/Oslo", "work_until": 24, "weight": 3, "max_running": 5, "max_cost_usd_per_day": 2.5}
    changed = await api.http.patch("/v1/tenant", json=change)
    assert (changed.status_code, changed.json()) == (200, {**before, **change})
    changed = await api.http.patch("/v1/tenant", json={"max_running": None, "max_cost_usd_per_day": None})
    assert changed.json() == {**before, **change, "max_running": None, "max_cost_usd_per_day": None}
    assert (await api.http.get("/v1/tenant")).json() == changed.json()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"timezone": "Europe/Atlantis"}, "timezone"),
        ({"timezone": "a\x00b"}, "timezone"),
        ({"timezone": None}, "timezone"),
        ({"work_from": 24}, "work_from"),
        ({"work_every_s": 0}, "work_every_s"),
        ({"weight": 0}, "weight"),
        ({"max_running": 0}, "max_running"),
        ({"max_running": 2**40}, "max_running"),
        ({"max_cost_usd_per_day": 0}, "max_cost_usd_per_day"),
        ({"name": "mine"}, "name"),
    ],
)
async def test_an_invalid_setting_is_refused_with_the_field_named(api: Api, change: dict[str, Any], field: str) -> None:
    before = (await api.http.get("/v1/tenant")).json()
    answer = await api.http.patch("/v1/tenant", json={"work_until": 20, **change})
    assert answer.status_code == 422, answer.text
    assert field in answer.text
    assert (await api.http.get("/v1/tenant")).json() == before


async def test_shares_of_the_fleet_are_set_by_operators(api: Api, database: Database) -> None:
    async with api.client(await _key(database, api.tenant.id, "agents")) as own:
        for field in ("weight", "max_running"):
            answer = await own.patch("/v1/tenant", json={field: 9})
            assert (answer.status_code, answer.json()["context"]["needed"]) == (403, "operator")
        assert (await own.patch("/v1/tenant", json={"max_cost_usd_per_day": 9})).status_code == 200
    async with api.client(await _key(database, api.tenant.id, "runs")) as reader:
        assert (await reader.patch("/v1/tenant", json={"timezone": "UTC"})).status_code == 403
        assert (await reader.get("/v1/tenant")).status_code == 200


async def test_operators_see_and_change_other_tenants(api: Api, other_tenant: Tenant, database: Database) -> None:
    theirs = {"tenant_id": other_tenant.id}
    assert (await api.http.patch("/v1/tenant", params=theirs, json={"weight": 7})).json()["id"] == other_tenant.id
    assert (await api.http.get("/v1/tenant", params=theirs)).json()["weight"] == 7
    assert (await api.http.get("/v1/tenant")).json()["weight"] == 1
    assert (await api.http.get("/v1/tenant", params={"tenant_id": "ten_none"})).status_code == 404
    async with api.client(await _key(database, api.tenant.id, "agents", "runs")) as own:
        assert (await own.get("/v1/tenant", params=theirs)).status_code == 403
        assert (await own.patch("/v1/tenant", params=theirs, json={"timezone": "UTC"})).status_code == 403


async def test_budgets_are_shown_with_the_remaining_amount(api: Api) -> None:
    await api.http.patch("/v1/tenant", json={"max_cost_usd_per_day": 4, "timezone": "Asia/Tokyo"})
    spec = {"id": "clerk", "name": "Clerk", "max_cost_usd_per_day": 1.5, "max_running": 2}
    assert (await api.http.post("/v1/agents", json=spec)).status_code == 201
    answer = (await api.http.get("/v1/budgets")).json()
    assert answer["timezone"] == "Asia/Tokyo"
    assert answer["resets_at"].endswith("T15:00:00Z")
    assert answer["items"] == [
        IsPartialDict(kind="tenant", id=api.tenant.id, max_usd=4.0, spent_usd=0.0, left_usd=4.0),
        IsPartialDict(kind="agent", id="clerk", name="Clerk", max_usd=1.5, spent_usd=0.0, left_usd=1.5),
    ]


async def test_a_run_has_the_priority_that_it_was_given(api: Api) -> None:
    thread_id = await api.thread()
    answer = await api.http.post(f"/v1/threads/{thread_id}/runs", json={"message": "hello", "priority": 7})
    assert answer.json()["priority"] == 7
    assert (await api.http.get(f"/v1/runs/{answer.json()['id']}")).json()["priority"] == 7
    for wrong in (101, -101, 1.5):
        refused = await api.http.post(f"/v1/threads/{thread_id}/runs", json={"message": "hello", "priority": wrong})
        assert refused.status_code == 422
