"""Triggers on a real fleet: crashed processes, a wiped broker, a restarted Postgres; each occurrence fires once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis

from nova_workers.base.errors import Unavailable
from nova_workers.contracts.http.triggers import TriggerCreate
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.chaos.conftest import OwnServers
from tests.requirements import proves
from tests.support.processes.clock_skew import skewed_clock
from tests.support.processes.fleet import Fleet
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

EVERY_SECOND = TriggerCreate(
    agent_id="nova", kind="cron", schedule="* * * * * *", prompt="hello", overlap="queue", catchup="each"
)
SECOND = timedelta(seconds=1)


async def _occurrences(database: Database, at_least: int) -> None:
    """Wait until a number of occurrences have fired."""
    async with asyncio.timeout(90):
        while True:
            try:
                count = await database.fetchval("SELECT count(*) FROM trigger_firings")
            except Unavailable:
                count = 0
            if count >= at_least:
                return
            await asyncio.sleep(0.1)


def _failed_ticks(fleet: Fleet) -> int:
    lines = fleet.workers[0].log.read_text().splitlines()
    return sum("task.not_done" in line for line in lines)


async def _check_each_once(database: Database) -> None:
    """Check that no occurrence was left out or fired twice, and that every run ended."""
    await database.execute("UPDATE triggers SET enabled = false, next_fire_at = NULL, next_slot_at = NULL")
    await database.execute("UPDATE trigger_firings SET outcome = 'skipped' WHERE outcome = 'queued'")
    rows = await database.fetch("SELECT scheduled_for, outcome, run_id FROM trigger_firings ORDER BY scheduled_for")
    occurrences = [row["scheduled_for"] for row in rows]
    assert occurrences == [occurrences[0] + at * SECOND for at in range(len(occurrences))]
    # An occurrence during the run of an earlier one has its row at once, and its run when that one has ended.
    fired = [row["run_id"] for row in rows if row["outcome"] == "fired"]
    runs = await database.fetch("SELECT id FROM runs WHERE trigger_id IS NOT NULL")
    assert sorted(fired) == sorted(row["id"] for row in runs)
    async with asyncio.timeout(90):
        while True:
            if not await database.fetchval("SELECT count(*) FROM runs WHERE status <> 'succeeded'"):
                break
            await asyncio.sleep(0.1)
    assert await database.fetchval("SELECT count(*) FROM turns") == len(runs)


@proves("triggers.once", "triggers.crash", "triggers.broker")
async def test_two_beats_and_two_workers_fire_each_second_once_whichever_dies(env: dict[str, str], database: Database):
    async with Fleet(env, workers=2, beat=True) as fleet:
        first = fleet.beat
        assert first is not None
        await fleet.start_beat()
        await fleet.client.triggers.create(EVERY_SECOND)
        await _occurrences(database, 4)
        first.kill()
        await _occurrences(database, 6)
        fleet.workers[0].kill()
        await _occurrences(database, 9)
        redis = Redis.from_url(env["NOVA_REDIS_URL"])
        await redis.flushdb()
        await redis.aclose()
        await _occurrences(database, 12)
        await _check_each_once(database)


# `tests/integration/triggers/test_exactly_once.py` shows whose clock decides, with a clock that is off.
@pytest.mark.long
@proves("triggers.clock")
async def test_machines_whose_clocks_are_an_hour_off_fire_on_time(
    env: dict[str, str], database: Database, tmp_path: Path
):
    """The only worker is an hour ahead, and the only beat an hour behind."""
    async with Fleet(env, workers=0) as fleet:
        worker = await fleet.start_worker(env=skewed_clock(tmp_path, 3600))
        fleet.env |= skewed_clock(tmp_path, -3600)
        await fleet.start_beat()
        await fleet.client.triggers.create(EVERY_SECOND)
        await _occurrences(database, 6)
        assert worker.exit_code is None
        late_s = await database.fetch(
            "SELECT extract(epoch FROM fired_at - scheduled_for) AS late_s FROM trigger_firings"
        )
        assert all(0 <= row["late_s"] < 30 for row in late_s)
        await _check_each_once(database)


@pytest.mark.begins_first
@proves("triggers.database")
async def test_a_postgres_that_is_killed_and_comes_back_costs_no_occurrence(own_servers: OwnServers):
    database = PostgresDatabase(own_servers.database_url, pool_size=2)
    try:
        async with Fleet(own_servers.env, workers=1, beat=True) as fleet:
            await fleet.client.triggers.create(EVERY_SECOND)
            await _occurrences(database, 3)
            await own_servers.postgres.kill()
            # Occurrences that no process can fire.
            await until(lambda: _failed_ticks(fleet) >= 1)
            await own_servers.postgres.start()
            await _occurrences(database, 8)
            await _check_each_once(database)
    finally:
        await database.close()
