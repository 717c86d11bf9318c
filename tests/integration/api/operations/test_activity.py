"""Activity over time: runs, waits, durations, tokens and cost by minute, hour and day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ulid import ULID

from api.activity_cache import ActivityCache
from nova_workers.base.ids import id_at, new_id
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.overview.activity import MAX_BUCKETS, ActivityView
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.support.harness.manual_clock import ManualClock

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
_RUN = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, created_at, started_at, finished_at)
VALUES (:id, :tenant_id, :thread_id, :agent_id, :seq, '[]', :status, :created_at, :started_at, :finished_at)
"""
_USAGE = """
INSERT INTO usage (id, tenant_id, run_id, turn_id, thread_id, agent_id, model, input_tokens, output_tokens, cost_usd,
                   model_calls, duration_ms, created_at)
VALUES (:id, :tenant_id, :run_id, :id, :thread_id, :agent_id, :model, 100, 10, :cost_usd, 2, 8000, :created_at)
"""


class _Ledger:
    """Writes runs that ended."""

    def __init__(self, api: Api, database: Database, thread_id: str) -> None:
        self._tenant_id = api.tenant.id
        self._database = database
        self._thread_id = thread_id
        self._seq = 0

    async def run(
        self, at: datetime, *, wait_s: float = 2, took_s: float = 10, agent_id: str = "nova", **given: Any
    ) -> None:
        """Write a run, submitted at a moment, with its usage."""
        self._seq += 1
        started_at = at + timedelta(seconds=wait_s)
        row = {
            "id": f"run_{ULID.from_datetime(at)}",
            "tenant_id": self._tenant_id,
            "thread_id": self._thread_id,
            "agent_id": agent_id,
        }
        ended_at = started_at + timedelta(seconds=took_s)
        times = {"created_at": at, "started_at": started_at, "finished_at": ended_at}
        status = given.get("status", "succeeded")
        await self._database.execute(_RUN, **row, **times, seq=100 + self._seq, status=status)
        used = {"model": given.get("model", "m-1"), "cost_usd": given.get("cost_usd", 0.5), "created_at": ended_at}
        await self._database.execute(_USAGE, **{**row, "id": new_id("use")}, run_id=row["id"], **used)


@pytest.fixture
async def ledger(api: Api, database: Database) -> _Ledger:
    """Writes runs of the tenant."""
    return _Ledger(api, database, await api.thread())


async def _activity(api: Api, **query: Any) -> ActivityView:
    answer = await api.http.get("/v1/activity", params=query)
    assert answer.status_code == 200, answer.text
    return ActivityView.model_validate_json(answer.content)


def _noon(hours: float = 0) -> str:
    return (NOON + timedelta(hours=hours)).isoformat()


async def test_each_bucket_has_runs_waits_durations_tokens_and_cost(api: Api, ledger: _Ledger) -> None:
    for at in range(20):
        await ledger.run(NOON + timedelta(minutes=at), wait_s=at, took_s=100 + at)
    await ledger.run(NOON + timedelta(minutes=90), status="failed", cost_usd=None)
    view = await _activity(api, **{"from": _noon(0.2), "to": _noon(3)})
    assert [bucket.since for bucket in view.buckets] == [NOON + timedelta(hours=hour) for hour in range(3)]
    first, second, third = view.buckets
    assert first.accepted == 20
    assert first.ended == {"succeeded": 20, "failed": 0, "canceled": 0, "merged": 0}
    assert first.wait_s is not None
    assert (first.wait_s.p50, first.wait_s.p95) == (9, 18)
    assert first.duration_s is not None
    assert (first.duration_s.p50, first.duration_s.p95) == (109, 118)
    assert (first.model_calls, first.input_tokens, first.output_tokens, first.cost_usd) == (40, 2000, 200, 10)
    assert (second.accepted, second.cost_usd) == (1, None)
    assert second.ended == {"succeeded": 0, "failed": 1, "canceled": 0, "merged": 0}
    assert (third.accepted, third.wait_s, third.duration_s, third.input_tokens) == (0, None, None, 0)


async def test_a_run_is_accepted_in_one_bucket_and_ends_in_another(api: Api, ledger: _Ledger) -> None:
    await ledger.run(NOON + timedelta(seconds=59), wait_s=2)
    view = await _activity(api, bucket="minute", **{"from": _noon(), "to": _noon(2 / 60)})
    assert [(bucket.accepted, (bucket.ended or {})["succeeded"]) for bucket in view.buckets] == [(1, 0), (0, 1)]


async def test_activity_is_grouped_by_agent_and_model(api: Api, ledger: _Ledger) -> None:
    await ledger.run(NOON)
    await ledger.run(NOON + timedelta(seconds=1), agent_id="clerk", model="m-2")
    await ledger.run(NOON + timedelta(seconds=2), agent_id="clerk", model="m-1", took_s=3600)
    agents = await _activity(api, group_by="agent", **{"from": _noon(), "to": _noon(3)})
    assert [(bucket.since.hour, bucket.key, bucket.accepted, bucket.input_tokens) for bucket in agents.buckets] == [
        (12, "clerk", 2, 100),
        (12, "nova", 1, 100),
        (13, "clerk", 0, 100),
    ]
    models = await _activity(api, group_by="model", **{"from": _noon(), "to": _noon(3)})
    assert [(bucket.since.hour, bucket.key, bucket.accepted, bucket.ended) for bucket in models.buckets] == [
        (12, "m-1", None, None),
        (12, "m-2", None, None),
        (13, "m-1", None, None),
    ]
    assert models.buckets[0].duration_s is not None
    assert models.buckets[0].duration_s.p50 == 8


async def test_days_are_those_of_the_fleet_s_zone_and_the_last_ends_now(api: Api, ledger: _Ledger) -> None:
    await ledger.run(NOON)
    days = await _activity(api, bucket="day", **{"from": _noon(-24), "to": _noon(1)})
    assert [(bucket.since.day, bucket.accepted) for bucket in days.buckets] == [(9, 0), (10, 1)]
    assert days.buckets[-1].until == NOON + timedelta(hours=1)
    for size, many in (("minute", {60, 61}), ("hour", {24, 25}), ("day", {30, 31})):
        assert len((await _activity(api, bucket=size)).buckets) in many


async def test_a_run_shows_at_once_in_the_bucket_that_has_not_ended(api: Api, worker: ManualWorker) -> None:
    assert sum(bucket.accepted or 0 for bucket in (await _activity(api)).buckets) == 0
    thread_id = await api.thread()
    await api.run(thread_id)
    await worker.play(thread_id)
    last = (await _activity(api)).buckets[-2:]
    assert sum(bucket.accepted or 0 for bucket in last) == 1
    assert sum((bucket.ended or {})["succeeded"] for bucket in last) == 1
    async with NovaClient(api.url, api.tenant.key) as nova:
        assert sum(bucket.accepted or 0 for bucket in (await nova.overview.activity("minute")).buckets) == 1


async def test_buckets_that_ended_are_read_once(api: Api, ledger: _Ledger, database: Database) -> None:
    await ledger.run(NOON)
    period = {"from": _noon(), "to": _noon(1)}
    first = await _activity(api, **period)
    await database.execute("DELETE FROM usage")
    assert await _activity(api, **period) == first
    # Another period, grouping or tenant has buckets of its own.
    assert (await _activity(api, group_by="model", **period)).buckets == []


async def test_a_period_without_activity_is_kept_however_often_it_was_read(
    api: Api, ledger: _Ledger, database: Database
) -> None:
    clock = ManualClock()
    cache = ActivityCache(database, clock, max_buckets=2)
    hour = (NOON, NOON + timedelta(hours=1))
    for _ in range(4):
        clock.advance(3600)
        assert await cache.load(api.tenant.id, [hour], "model") == []
    await ledger.run(NOON)
    assert await cache.load(api.tenant.id, [hour], "model") == []


async def test_another_tenant_s_activity_is_not_counted(api: Api, ledger: _Ledger, other_tenant: Tenant) -> None:
    await ledger.run(NOON)
    period = {"from": _noon(), "to": _noon(1)}
    assert (await _activity(api, **period)).buckets[0].accepted == 1
    async with api.client(other_tenant.key) as other:
        (bucket,) = (await other.get("/v1/activity", params=period)).json()["buckets"]
    assert (bucket["accepted"], bucket["ended"]["succeeded"], bucket["input_tokens"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": _noon(1), "to": _noon()}, "from"),
        ({"from": _noon(), "to": _noon(MAX_BUCKETS)}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"bucket": "week"}, "bucket"),
        ({"group_by": "thread"}, "group_by"),
    ],
)
async def test_an_invalid_query_is_refused(api: Api, query: dict[str, str], field: str) -> None:
    answer = await api.http.get("/v1/activity", params=query)
    assert answer.status_code == 422, answer.text
    assert field in answer.text


def test_ids_of_a_moment_are_between_its_bounds() -> None:
    made = f"run_{ULID.from_datetime(NOON)}"
    assert id_at("run", NOON) < made < id_at("run", NOON + timedelta(milliseconds=1))
