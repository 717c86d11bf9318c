"""Each occurrence fires once, despite crashes at any point and any number of concurrent ticks."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, tzinfo
from typing import get_args

import pytest

from nova_workers.base.errors import Unavailable
from nova_workers.ledger.database import Database
from tests.integration.triggers.trigger_harness import TriggerHarness
from tests.requirements import proves
from tests.support.harness.fault_injection import Crashed, Fault, FaultInjector
from tests.support.harness.workers import Harness
from tests.support.points import each_once

STATEMENTS = ("settle_alone", "settle", "take_due", "lock_threads", "spent", "insert", "request", "move")
"""The statements of a tick with every kind of trigger, in their order."""


async def check_once(database: Database, expected: int) -> None:
    """Check the number of occurrences, each with its run, and no run without an occurrence."""
    assert await database.fetchval("SELECT count(*) FROM trigger_firings WHERE outcome = 'fired'") == expected
    assert await database.fetchval("SELECT count(*) FROM runs WHERE trigger_id IS NOT NULL") == expected
    strays = await database.fetch(
        "SELECT r.id FROM runs r FULL JOIN trigger_firings f ON f.run_id = r.id"
        " WHERE (r.id IS NULL OR f.id IS NULL OR r.meta ->> 'trigger_id' <> f.trigger_id)"
        "   AND f.outcome IS DISTINCT FROM 'skipped'"
    )
    assert not strays


@proves("triggers.once", "beat.safe-to-double")
async def test_concurrent_tickers_fire_each_occurrence_once(triggers: TriggerHarness) -> None:
    made = [await triggers.make(overlap="queue") for _ in range(40)]
    tickers = [triggers.ticker(batch=7) for _ in range(4)]
    worker = triggers.harness.worker()
    for _ in range(3):
        await triggers.pass_time(60)
        ticked = await asyncio.gather(*(ticker.tick() for ticker in tickers))
        assert sum(each.fired for each in ticked) == len(made)
        await triggers.harness.settle(worker)
    await check_once(triggers.database, 3 * len(made))
    assert len(triggers.harness.engine.model_calls) == 3 * len(made)


async def full_house(triggers: TriggerHarness) -> None:
    """Create triggers of every kind, all due, and one open run of a trigger that cancels it."""
    thread_id = await triggers.harness.thread()
    canceling = await triggers.make(overlap="cancel_other")
    await triggers.firer.fire(triggers.harness.tenant_id, canceling)
    await triggers.make(thread_id=thread_id)
    await triggers.make(thread_id=thread_id, max_runs_per_day=5)
    await triggers.make("cron", "0 0 1 1 *", max_cost_usd_per_day=1)
    triggers.harness.bells.take()
    await triggers.pass_time(61)
    await triggers.database.execute(
        "UPDATE triggers SET next_slot_at = now(), next_fire_at = now() WHERE kind = 'cron'"
    )


@pytest.mark.parametrize(("statement", "fault"), each_once(STATEMENTS, get_args(Fault)))
@proves("triggers.crash")
async def test_each_occurrence_fires_once_if_a_ticker_dies_at_any_statement(
    triggers: TriggerHarness, statement: str, fault: Fault
) -> None:
    await full_house(triggers)
    faults = FaultInjector()
    faults.plan(fault, statement)
    with pytest.raises((Crashed, Unavailable)):
        await triggers.ticker(faults).tick()
    assert faults.dead == fault.startswith("crash")
    # Died before a bell could ring: what was committed is rung for by the reconciler.
    assert not triggers.harness.bells.waiting
    await triggers.tick()
    await triggers.tick()
    await check_once(triggers.database, 5)
    await triggers.harness.age_doorbells()
    for _ in range(2):
        await triggers.harness.reconciler.reconcile()
        await triggers.harness.settle(triggers.harness.worker())
    statuses = await triggers.database.fetch("SELECT status, count(*) FROM runs GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in statuses] == [("canceled", 1), ("succeeded", 4)]


@proves("triggers.broker")
async def test_runs_start_later_if_the_broker_is_wiped_after_the_firing(triggers: TriggerHarness) -> None:
    await triggers.make()
    await triggers.pass_time(61)
    assert (await triggers.tick()).fired == 1
    await triggers.harness.redis.flushdb()
    triggers.harness.bells.take()
    await triggers.harness.age_doorbells()
    await triggers.harness.reconciler.reconcile()
    await triggers.harness.settle(triggers.harness.worker())
    assert len(triggers.harness.engine.model_calls) == 1
    await check_once(triggers.database, 1)


@proves("triggers.clock")
@pytest.mark.parametrize("hours", [-1, 1])
async def test_the_databases_clock_decides_what_is_due(
    triggers: TriggerHarness, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The process's own clock is an hour off here. Whole machines: tests/chaos/test_triggers.py."""
    right: datetime = await triggers.database.fetchval("SELECT now()")

    class SkewedDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> SkewedDatetime:
            return super().now(tz) + timedelta(hours=hours)

    for module in ("definitions", "occurrences", "schedules", "verdicts"):
        monkeypatch.setattr(f"nova_workers.domain.triggers.rules.{module}.datetime", SkewedDatetime)
    monkeypatch.setattr("nova_workers.base.clock.datetime", SkewedDatetime)
    trigger_id = await triggers.make(schedule="600")
    minutely = await triggers.make("cron", "* * * * *")
    made = await triggers.get(trigger_id)
    assert made.next_slot_at == made.created_at + timedelta(seconds=600)
    assert abs(made.created_at - right) < timedelta(seconds=30)
    coming = (await triggers.get(minutely)).next_slot_at
    assert coming is not None
    assert timedelta() < coming - right <= timedelta(seconds=90)
    await triggers.pass_time(570, trigger_id)
    await triggers.tick()
    assert not await triggers.runs(trigger_id)
    await triggers.pass_time(31, trigger_id)
    await triggers.tick()
    assert len(await triggers.runs(trigger_id)) == 1
    after = await triggers.get(trigger_id)
    assert after.next_slot_at == after.created_at + timedelta(seconds=1200)


@proves("triggers.once")
async def test_an_existing_row_of_an_occurrence_prevents_another_firing(triggers: TriggerHarness) -> None:
    """As after a restored backup of one table: the unique index backs up the lock."""
    trigger_id = await triggers.make()
    await triggers.pass_time(61)
    assert (await triggers.tick()).fired == 1
    occurrence = (await triggers.firings(trigger_id))[0]["scheduled_for"]
    await triggers.end_runs()
    await triggers.database.execute(
        "UPDATE triggers SET next_slot_at = :next_slot_at, next_fire_at = :next_slot_at", next_slot_at=occurrence
    )
    ticked = await triggers.tick()
    assert (ticked.fired, len(await triggers.runs(trigger_id))) == (0, 1)
    assert (await triggers.get(trigger_id)).next_slot_at == occurrence + timedelta(seconds=60)


async def test_a_tick_waits_for_no_other_transaction(triggers: TriggerHarness) -> None:
    """A locked trigger is left to the next tick, so that ticks cannot deadlock."""
    held, free = [await triggers.make() for _ in range(2)]
    await triggers.pass_time(61)
    async with triggers.database.transaction() as connection:
        await connection.execute("SELECT FROM triggers WHERE id = :trigger_id FOR UPDATE", trigger_id=held)
        async with asyncio.timeout(60):
            assert (await triggers.tick()).fired == 1
    assert len(await triggers.runs(free)) == 1
    assert (await triggers.tick()).fired == 1


@proves("triggers.many")
async def test_ten_thousand_due_triggers_all_fire_once(triggers: TriggerHarness) -> None:
    await many(triggers.harness, 10_000)
    ticked = await asyncio.gather(triggers.tick(), triggers.ticker().tick())
    assert sum(each.fired for each in ticked) == 10_000
    await check_once(triggers.database, 10_000)
    assert not await triggers.database.fetchval("SELECT count(*) FROM triggers WHERE next_fire_at <= now()")
    assert len({bell.run_id for bell in triggers.harness.bells.take()}) == 10_000


async def many(harness: Harness, count: int) -> None:
    """Create this many triggers that are due now, each with a period of an hour."""
    await harness.database.execute(
        "INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, timezone, prompt, created_by, next_slot_at,"
        " next_fire_at) SELECT 'trg_' || lpad(n::text, 26, '0'), :tenant_id, 'planned', 'cron',"
        " (n % 60)::text || ' * * * *', 'Europe/Berlin', 'hello', 'person', now(), now()"
        " FROM generate_series(1, :count::int) n",
        tenant_id=harness.tenant_id,
        count=count,
    )
