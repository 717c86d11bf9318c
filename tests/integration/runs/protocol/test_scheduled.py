"""Runs that start later, and messages that are collected into one turn."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nova_workers.base.errors import Unavailable
from nova_workers.contracts.content import text_block
from nova_workers.contracts.runs import Accepted
from nova_workers.domain.runs.rules.scheduled import Scheduled
from nova_workers.domain.runs.sql.cancel import edit_queued, withdraw_queued_of_agent
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.domain.threads.sql.records import delete_thread
from nova_workers.ledger.work import Work
from tests.requirements import proves
from tests.support.harness.fault_injection import Crashed, Fault, FaultInjectingDatabase, FaultInjector
from tests.support.harness.invariants import check_any_time
from tests.support.harness.workers import AGENT, Harness

_HOUR = timedelta(hours=1)


def _later() -> datetime:
    return datetime.now(UTC) + _HOUR


async def _pass_time(harness: Harness) -> None:
    await harness.database.execute("UPDATE runs SET start_at = start_at - interval '1 hour' WHERE status = 'scheduled'")


async def _collect(harness: Harness, text: str, thread_id: str, **fields: Any) -> Accepted:
    return await harness.submit(text, thread_id, on_busy="collect", collect_ms=3_600_000, **fields)


async def _messages_of(harness: Harness, run_id: str) -> list[str]:
    row = await harness.database.fetchrow(
        "SELECT content FROM messages WHERE run_id = :run_id AND kind = 'query'", run_id=run_id
    )
    return [] if row is None else [block["text"] for block in row["content"]]


@proves("start.later")
async def test_a_run_with_a_start_is_accepted_at_once_and_runs_from_then_on(harness: Harness) -> None:
    start_at = _later()
    run = await harness.submit("later", start_at=start_at)
    assert not harness.bells.waiting
    async with harness.database.connection() as connection:
        view = await get_run(connection, harness.tenant_id, run.run_id)
    assert (view.status, view.start_at, view.position) == ("scheduled", start_at, None)
    assert view.waiting_for == f"its start at {start_at.isoformat(timespec='seconds')}"
    await harness.reconciler.reconcile()
    assert await harness.status(run.run_id) == "scheduled"
    await _pass_time(harness)
    await harness.reconciler.reconcile()
    assert await harness.status(run.run_id) == "queued"
    await harness.settle(harness.worker())
    assert await harness.status(run.run_id) == "succeeded"


async def test_a_start_in_the_past_starts_now(harness: Harness) -> None:
    run = await harness.submit("at once", start_at=datetime.now(UTC) - _HOUR)
    assert [bell.run_id for bell in harness.bells.waiting] == [run.run_id]
    assert await harness.status(run.run_id) == "queued"


@proves("start.order")
async def test_a_scheduled_run_delays_no_other_and_is_queued_at_its_start(
    harness: Harness,
) -> None:
    thread_id = await harness.thread()
    late = await harness.submit("late", thread_id, start_at=_later())
    first = await harness.submit("first", thread_id)
    await harness.settle(harness.worker())
    assert (await harness.status(first.run_id), await harness.status(late.run_id)) == ("succeeded", "scheduled")
    second = await harness.submit("second", thread_id)
    await _pass_time(harness)
    await harness.scheduled.start_due()
    third = await harness.submit("third", thread_id)
    await harness.settle(*harness.workers)
    heads = await harness.database.fetch("SELECT run_id FROM thread_heads WHERE move = 'turn' ORDER BY id")
    assert [head["run_id"] for head in heads] == [run.run_id for run in (first, second, late, third)]
    await check_any_time(harness.database)


@proves("start.cancel")
async def test_a_run_that_has_not_started_is_edited_and_canceled_like_a_queued_one(harness: Harness) -> None:
    run = await harness.submit("later", start_at=_later())
    async with harness.database.connection() as connection:
        assert await edit_queued(connection, harness.tenant_id, run.run_id, [text_block("other words")])
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    assert await harness.status(run.run_id) == "canceled"
    gone = await harness.submit("with its thread", start_at=_later())
    async with harness.database.transaction() as connection:
        await delete_thread(connection, harness.tenant_id, gone.thread_id)
    assert await harness.status(gone.run_id) == "canceled"
    with_agent = await harness.submit("with its agent", start_at=_later())
    async with harness.database.transaction() as connection:
        assert await withdraw_queued_of_agent(connection, harness.tenant_id, AGENT) == 1
    assert await harness.status(with_agent.run_id) == "canceled"
    await _pass_time(harness)
    assert await harness.scheduled.start_due() == 0


@proves("start.timer")
async def test_a_start_within_a_minute_is_made_by_the_process_that_accepted_it(harness: Harness) -> None:
    run = await harness.submit("soon", start_at=datetime.now(UTC) + timedelta(milliseconds=50))
    await harness.until(run.run_id, "queued")
    await harness.settle(harness.worker())
    assert await harness.status(run.run_id) == "succeeded"


@proves("collect.one-turn")
async def test_messages_within_the_window_become_one_turn_in_order_and_each_run_has_an_outcome(
    harness: Harness,
) -> None:
    thread_id = await harness.thread()
    runs = [await _collect(harness, text, thread_id) for text in ("one", "two", "three")]
    assert not harness.bells.waiting
    await _pass_time(harness)
    assert await harness.scheduled.start_due() == 1
    await harness.settle(harness.worker())
    rows = [await harness.run(run.run_id) for run in runs]
    assert [(row["status"], row["merged_into"]) for row in rows] == [
        *(("succeeded", None), ("merged", runs[0].run_id), ("merged", runs[0].run_id)),
    ]
    assert await _messages_of(harness, runs[0].run_id) == ["one", "two", "three"]
    assert await harness.database.fetchval("SELECT count(*) FROM turns") == 1
    await check_any_time(harness.database)


@proves("collect.one-turn")
async def test_the_window_starts_with_the_first_message_and_a_later_message_starts_another(harness: Harness) -> None:
    thread_id = await harness.thread()
    first = await harness.submit("one", thread_id, on_busy="collect", collect_ms=3_600_000)
    await _pass_time(harness)
    second = await _collect(harness, "two", thread_id)
    await harness.scheduled.start_due()
    assert (await harness.run(second.run_id))["merged_into"] == first.run_id
    third = await _collect(harness, "three", thread_id)
    await harness.scheduled.start_due()
    assert await harness.status(third.run_id) == "scheduled"


@proves("collect.one-turn")
async def test_messages_are_collected_while_the_thread_is_busy(harness: Harness) -> None:
    busy = await harness.submit("busy")
    one = await _collect(harness, "one", busy.thread_id)
    two = await _collect(harness, "two", busy.thread_id)
    await _pass_time(harness)
    await harness.scheduled.start_due()
    await harness.settle(harness.worker())
    assert [await harness.status(run.run_id) for run in (busy, one, two)] == ["succeeded", "succeeded", "merged"]
    assert await _messages_of(harness, one.run_id) == ["one", "two"]


@proves("collect.cancel")
async def test_a_message_that_is_canceled_within_the_window_is_not_in_the_turn(harness: Harness) -> None:
    thread_id = await harness.thread()
    runs = [await _collect(harness, text, thread_id) for text in ("one", "two", "three")]
    await harness.canceller.cancel(harness.tenant_id, runs[0].run_id)
    await _pass_time(harness)
    await harness.scheduled.start_due()
    await harness.settle(harness.worker())
    assert await _messages_of(harness, runs[1].run_id) == ["two", "three"]
    assert [await harness.status(run.run_id) for run in runs] == ["canceled", "succeeded", "merged"]


@proves("start.twice", "collect.twice")
@pytest.mark.parametrize("fault", ["crash_before", "crash_after", "lose_reply", "refuse"])
async def test_each_message_is_said_once_if_the_process_that_starts_it_dies(harness: Harness, fault: Fault) -> None:
    thread_id = await harness.thread()
    runs = [await _collect(harness, text, thread_id) for text in ("one", "two")]
    plain = await harness.submit("alone", start_at=_later())
    await _pass_time(harness)
    faults = FaultInjector()
    faults.plan(fault, "promote")
    dying = Scheduled(Work(FaultInjectingDatabase(harness.database, faults), harness.bells), harness.publisher)
    with pytest.raises((Crashed, Unavailable)):
        await dying.start_due()
    await harness.database.execute("UPDATE runs SET rang_at = rang_at - interval '1 hour' WHERE status = 'queued'")
    await harness.reconciler.reconcile()
    await harness.settle(harness.worker())
    assert [await harness.status(run.run_id) for run in (*runs, plain)] == ["succeeded", "merged", "succeeded"]
    assert await _messages_of(harness, runs[0].run_id) == ["one", "two"]
    assert await harness.database.fetchval("SELECT count(*) FROM turns") == 2


@proves("start.twice", "collect.twice")
async def test_concurrent_processes_start_each_run_once(harness: Harness) -> None:
    threads = [await harness.thread() for _ in range(5)]
    for thread_id in threads:
        for text in ("one", "two", "three"):
            await _collect(harness, text, thread_id)
    await _pass_time(harness)
    started = await asyncio.gather(*(harness.scheduled.start_due() for _ in range(8)))
    assert sum(started) == len(threads)
    rows = await harness.database.fetch(
        "SELECT status, count(*)::int AS runs FROM runs GROUP BY status ORDER BY status"
    )
    assert [tuple(row) for row in rows] == [("merged", 10), ("queued", 5)]
