"""Usage reports, summed by the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dirty_equals import IsPartialDict

from nova_workers.base.ids import new_id
from nova_workers.client.client import NovaClient
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MARCH = {"from": "2026-03-01T00:00:00Z", "to": "2026-04-01T00:00:00Z"}


async def _used(database: Database, tenant_id: str, **given: Any) -> None:
    row = {
        "id": new_id("use"), "tenant_id": tenant_id, "run_id": new_id("run"), "turn_id": new_id("turn"),
        "thread_id": "thr_1", "agent_id": "nova", "model": "m-1", "input_tokens": 100, "output_tokens": 10,
        "cost_usd": 0.5, "model_calls": 1, "created_at": NOON, **given,
    }  # fmt: skip
    names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
    await database.execute(f"INSERT INTO usage ({names}) VALUES ({marks})", **row)


async def _report(api: Api, **query: Any) -> Any:
    answer = await api.http.get("/v1/usage", params={**MARCH, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_usage_is_summed_up_by_agent_model_and_day(api: Api, database: Database) -> None:
    tenant_id = api.tenant.id
    await _used(database, tenant_id)
    await _used(database, tenant_id, agent_id="clerk", model="m-2", cost_usd=2, created_at=NOON + timedelta(days=1))
    await _used(database, tenant_id, run_id=None, cache_read_tokens=7)
    agents = await _report(api, group_by="agent")
    assert agents["groups"] == [
        IsPartialDict(key="clerk", runs=1, cost_usd=2.0, input_tokens=100),
        IsPartialDict(key="nova", runs=1, model_calls=2, cost_usd=1.0, input_tokens=200, cache_read_tokens=7),
    ]
    assert agents["total"] == IsPartialDict(key=None, runs=2, model_calls=3, cost_usd=3.0, output_tokens=30)
    assert [group["key"] for group in (await _report(api, group_by="model"))["groups"]] == ["m-2", "m-1"]
    assert [group["key"] for group in (await _report(api))["groups"]] == ["2026-03-11", "2026-03-10"]


async def test_runs_of_unknown_cost_are_counted_and_not_taken_as_free(api: Api, database: Database) -> None:
    await _used(database, api.tenant.id)
    await _used(database, api.tenant.id, cost_usd=None)
    await _used(database, api.tenant.id, cost_usd=None, model=None, model_calls=0)
    report = await _report(api, group_by="model")
    assert report["groups"] == [
        IsPartialDict(key="m-1", cost_usd=0.5, unpriced=1),
        IsPartialDict(key=None, cost_usd=None, unpriced=0, runs=1),
    ]
    assert report["total"] == IsPartialDict(cost_usd=0.5, unpriced=1)


async def test_without_usage_the_report_is_empty(api: Api) -> None:
    report = await _report(api)
    assert (report["groups"], report["groups_total"]) == ([], 0)
    assert report["total"] == IsPartialDict(runs=0, cost_usd=None)


async def test_other_tenants_and_other_times_are_left_out(api: Api, other_tenant: Tenant, database: Database) -> None:
    await _used(database, other_tenant.id)
    await _used(database, api.tenant.id, created_at=datetime(2026, 4, 1, tzinfo=UTC))
    await _used(database, api.tenant.id, created_at=datetime(2026, 2, 28, 23, 59, tzinfo=UTC))
    await _used(database, api.tenant.id, created_at=datetime(2026, 3, 1, tzinfo=UTC))
    assert (await _report(api))["total"]["runs"] == 1


async def test_a_limit_cuts_groups_and_not_the_total(api: Api, database: Database) -> None:
    for cents in range(5):
        await _used(database, api.tenant.id, agent_id=f"agent-{cents}", cost_usd=cents / 100)
    report = await _report(api, group_by="agent", limit=2)
    assert [group["key"] for group in report["groups"]] == ["agent-4", "agent-3"]
    assert (report["groups_total"], report["total"]["runs"]) == (5, 5)


async def test_days_are_whole_and_the_last_is_today(api: Api, database: Database) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    await _used(database, api.tenant.id, created_at=today)
    await _used(database, api.tenant.id, created_at=today - timedelta(seconds=1))
    one = (await api.http.get("/v1/usage", params={"days": 1})).json()
    assert (one["total"]["runs"], one["since"]) == (1, today.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert (await api.http.get("/v1/usage")).json()["total"]["runs"] == 2


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"group_by": "moon"}, "group_by"),
        ({"days": 0}, "days"),
        ({"days": 401}, "days"),
        ({"days": 1, "from": "2026-01-01T00:00:00Z"}, "days"),
        ({"from": "2026-01-01"}, "from"),
        ({"from": "2026-01-01T00:00:00"}, "from"),
        ({"from": "0001-01-01T00:00:00+14:00"}, "from"),
        ({"to": "9999-12-31T23:59:59-12:00"}, "to"),
        ({"from": "2026-02-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}, "from"),
        ({"from": "2020-02-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}, "from"),
        ({"limit": 1_001}, "limit"),
    ],
)
async def test_an_invalid_query_is_refused(api: Api, query: dict[str, Any], field: str) -> None:
    answer = await api.http.get("/v1/usage", params=query)
    assert answer.status_code == 422, answer.text
    assert field in answer.text


async def test_the_client_gets_the_same_report(api: Api, database: Database) -> None:
    await _used(database, api.tenant.id)
    async with NovaClient(api.url, api.tenant.key) as nova:
        report = await nova.usage.report("agent", since=NOON - timedelta(days=1), until=NOON + timedelta(days=1))
        assert [group.key for group in report.groups] == ["nova"]
        assert (await nova.usage.report(days=1)).groups == []


async def test_the_rows_of_other_times_are_not_read(api: Api, database: Database) -> None:
    await database.execute(
        "INSERT INTO usage (id, tenant_id, turn_id, thread_id, agent_id, created_at)"
        " SELECT 'use_' || n, :tenant_id, 'turn_' || n, 'thr_1', 'nova',"
        "       timestamptz '2025-01-01' + n * interval '1 hour' FROM generate_series(1, 8000) n",
        tenant_id=api.tenant.id,
    )
    await database.execute("ANALYZE usage")
    plan = await database.fetch(
        "EXPLAIN SELECT agent_id, sum(cost_usd) FROM usage WHERE tenant_id = :tenant_id AND created_at >= '2025-03-01'"
        " AND created_at < '2025-03-08' GROUP BY GROUPING SETS ((agent_id), ())",
        tenant_id=api.tenant.id,
    )
    assert any("ix_usage" in line[0] for line in plan), [line[0] for line in plan]
