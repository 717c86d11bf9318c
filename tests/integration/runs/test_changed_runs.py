"""Lists of an agent's runs by their last change: whole in pages, and cheap however many runs have ended."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.delivery.rules.task_status import changed_at
from nova_workers.domain.runs.sql import changes
from nova_workers.domain.runs.sql.changes import ChangedRuns, count_changed_runs, list_changed_runs
from nova_workers.ledger.database import Database

_TENANT: Final = "ten_1"
_START: Final = datetime(2030, 5, 1, tzinfo=UTC)

# Of each status many, which ended in another order than they were sent, four at each time.
_RUNS = """
WITH tenant AS (
    INSERT INTO tenants (id, name) VALUES ('ten_1', 'one') RETURNING id
), thread AS (
    INSERT INTO threads (id, tenant_id, agent_id, next_seq)
    SELECT 'thr_' || i, tenant.id, CASE WHEN i % 9 = 0 THEN 'quiet' ELSE 'busy' END, 2
      FROM tenant, generate_series(1, :runs::int) i
    RETURNING id, tenant_id, agent_id
)
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, created_at, finished_at)
SELECT 'run_' || lpad(substr(id, 5), 6, '0'), tenant_id, id, agent_id, 1, '[]',
       CASE WHEN n % 50 = 0 THEN 'queued' 
            ELSE (ARRAY['succeeded', 'succeeded', 'failed', 'canceled', 'merged'])[n % 5 + 1]
       END,
       :start::timestamptz + n * interval '1 second',
       CASE WHEN n % 50 > 0 THEN :start::timestamptz + (n * 7919 % 1000 / 4) * interval '1 minute' END
  FROM (SELECT *, substr(id, 5)::int AS n FROM thread) t
"""


async def _pages(database: Database, which: ChangedRuns, size: int) -> list[RunView]:
    found: list[RunView] = []
    async with database.connection() as connection:
        while True:
            before = (changed_at(found[-1]), found[-1].id) if found else None
            page = await list_changed_runs(connection, _TENANT, which, before=before, limit=size)
            if not page:
                return found
            found += page


@pytest.mark.parametrize(
    ("which", "statuses"),
    [
        (ChangedRuns("busy"), {"queued", "succeeded", "failed", "canceled"}),
        (ChangedRuns("quiet", statuses=frozenset({"succeeded"})), {"succeeded"}),
        (ChangedRuns("busy", statuses=frozenset({"queued"})), {"queued"}),
        (ChangedRuns("busy", since=_START + timedelta(hours=3)), {"queued", "succeeded", "failed", "canceled"}),
    ],
)
async def test_pages_have_each_run_once_in_the_order_of_changes(
    database: Database, which: ChangedRuns, statuses: set[str]
) -> None:
    await database.execute(_RUNS, runs=400, start=_START)
    rows = await database.fetch("SELECT id, agent_id, status, COALESCE(finished_at, created_at) AS at FROM runs")
    expected = sorted(
        (
            (row["at"], row["id"])
            for row in rows
            if row["agent_id"] == which.agent_id and row["status"] in statuses
            if which.since is None or row["at"] >= which.since
        ),
        reverse=True,
    )
    assert expected
    found = await _pages(database, which, 7)
    assert [(changed_at(run), run.id) for run in found] == expected
    async with database.connection() as connection:
        assert await count_changed_runs(connection, _TENANT, which, at_most=1_000) == len(expected)
        assert await count_changed_runs(connection, _TENANT, which, at_most=3) == min(3, len(expected))


async def test_a_page_reads_no_more_of_ended_runs_than_it_shows(database: Database) -> None:
    await database.execute(_RUNS, runs=5_000, start=_START)
    await database.execute("ANALYZE runs")
    before = (_START + timedelta(hours=5), "run_1")
    for which in (ChangedRuns("busy"), ChangedRuns("quiet"), ChangedRuns("busy", since=_START + timedelta(hours=4))):
        query, values = changes._found(which, before=before, at_most="limit")  # pyright: ignore[reportPrivateUsage]
        explained = f"EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) {query}"
        rows = await database.fetch(explained, **values, tenant_id=_TENANT, limit=10)
        plan = "\n".join(row["QUERY PLAN"] for row in rows)
        read = re.findall(r"using ix_runs__ended_of_agent .*rows=([0-9.]+)", plan)
        assert len(read) == 3, plan
        assert all(float(count) <= 10 for count in read), plan
        assert "Seq Scan on runs" not in plan, plan
