"""The reconciler finds what no other process handles."""

from __future__ import annotations

import asyncio

import pytest

from nova_workers.base.keys import broker_queue
from tests.requirements import proves
from tests.support.harness.invariants import check_settled
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import AGENT, Harness


@proves("recover.doorbell")
async def test_a_lost_doorbell_is_rung_again_once_it_is_old(harness: Harness):
    run = await harness.submit("hello")
    (bell,) = harness.bells.take()
    assert (await harness.reconciler.reconcile()).rerung == 0
    await harness.age_doorbells()
    assert (await harness.reconciler.reconcile()).rerung == 1
    assert harness.bells.waiting == [bell]
    # Marked as rung: the next pass leaves it alone.
    assert (await harness.reconciler.reconcile()).rerung == 0
    assert await harness.status(run.run_id) == "queued"


@proves("recover.doorbell")
async def test_the_bells_of_a_mass_firing_are_rung_again_in_one_pass(harness: Harness):
    await harness.submit("hello", queue="background")
    # More than one batch, each in a thread of its own.
    await harness.database.execute(
        "INSERT INTO threads (id, tenant_id, agent_id, next_seq)"
        " SELECT 'thr_' || n, :tenant_id, :agent_id, 2 FROM generate_series(1, 1500) n",
        tenant_id=harness.tenant_id,
        agent_id=AGENT,
    )
    await harness.database.execute(
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, on_busy, queue, source)"
        " SELECT 'run_' || n, r.tenant_id, 'thr_' || n, r.agent_id, 1, r.content, r.on_busy, r.queue, r.source"
        "   FROM runs r, generate_series(1, 1500) n"
    )
    harness.bells.take()
    await harness.age_doorbells()
    assert (await harness.reconciler.reconcile()).rerung == 1501
    assert len({bell.run_id for bell in harness.bells.take()}) == 1501
    assert (await harness.reconciler.reconcile()).rerung == 0


@proves("recover.doorbell")
async def test_with_a_backlog_in_the_broker_no_doorbell_is_rung_again_early(harness: Harness):
    await harness.submit("hello")
    await harness.submit("later", queue="background")
    harness.bells.take()
    await harness.redis.lpush(broker_queue("interactive"), b"a doorbell that nobody took yet")
    await harness.database.execute("UPDATE runs SET rang_at = now() - interval '30 seconds'")
    await harness.reconciler.reconcile()
    assert [bell.queue for bell in harness.bells.take()] == ["background"]
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    assert [bell.queue for bell in harness.bells.take()] == ["interactive", "background"]


async def test_only_the_first_run_of_a_queue_is_rung_for_and_none_of_a_busy_thread(harness: Harness):
    worker = harness.worker()
    active, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    await harness.submit("behind it", active.thread_id)
    first = await harness.submit("first")
    await harness.submit("second", first.thread_id)
    harness.bells.take()
    await harness.age_doorbells()
    assert (await harness.reconciler.reconcile()).rerung == 1
    assert [bell.run_id for bell in harness.bells.waiting] == [first.run_id]
    harness.engine.open("a")
    await slot


@proves("recover.expired")
async def test_a_run_whose_lease_expired_goes_before_queued_runs(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, _ = await harness.begin(worker, plan(["wait:a"]), "a")
    waiting = await harness.submit("next", run.thread_id)
    urgent = await harness.submit("urgent", run.thread_id, on_busy="enqueue")
    harness.bells.take()
    await worker.crash()
    assert await harness.recover() == 1
    await harness.settle(other)
    order = [row["id"] for row in await harness.database.fetch("SELECT id FROM runs ORDER BY finished_at")]
    assert order == [run.run_id, waiting.run_id, urgent.run_id]
    await check_settled(harness.database, harness.engine)


@proves("recover.expired")
async def test_a_valid_lease_is_not_touched(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    assert (await harness.reconciler.reconcile()).recovered == 0
    assert await harness.status(run.run_id) == "running"
    harness.engine.open("a")
    await slot


@proves("recover.twice", "beat.safe-to-double")
async def test_many_reconcilers_at_once_recover_and_ring_each_run_once(harness: Harness):
    worker = harness.worker()
    runs = [await harness.submit(plan(doors={0: f"door {at}"})) for at in range(6)]
    slots = [worker.answer(bell) for bell in harness.bells.take()]
    for at in range(6):
        await harness.engine.reached(f"door {at}")
    await worker.crash()
    await asyncio.gather(*slots, return_exceptions=True)
    for at in range(6):
        harness.engine.open(f"door {at}")
    lost = [await harness.submit("a lost doorbell") for _ in range(6)]
    harness.bells.take()
    await harness.expire_leases()
    await harness.age_doorbells()
    passes = await asyncio.gather(*(harness.reconciler.reconcile() for _ in range(4)))
    assert sum(each.rerung for each in passes) == 6
    assert sum(each.recovered for each in passes) == len(runs)
    assert sorted(bell.run_id for bell in harness.bells.waiting) == sorted(run.run_id for run in (*runs, *lost))
    await harness.settle(harness.worker())
    await check_settled(harness.database, harness.engine)


async def test_a_run_that_another_transaction_locks_is_left_to_the_next_pass(harness: Harness):
    """The reconciler waits for no lock, so it can be part of no deadlock."""
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    await harness.expire_leases()
    async with harness.database.transaction() as connection:
        await connection.execute("SELECT 1 FROM runs WHERE id = :run_id FOR UPDATE", run_id=run.run_id)
        async with asyncio.timeout(60):
            assert (await harness.reconciler.reconcile()).recovered == 0
    assert (await harness.reconciler.reconcile()).recovered == 1
    await worker.crash()
    await slot


async def test_due_effects_are_rung_for(harness: Harness):
    worker = harness.worker()
    await harness.submit("hello")
    await harness.settle(worker)
    assert harness.bells.effects_rung == 1
    assert (await harness.reconciler.reconcile()).effects_due
    assert harness.bells.effects_rung == 2


@pytest.mark.parametrize("moment", ["queued", "running", "between steps", "recovering"])
@proves("redis.wipe")
async def test_wiping_redis_at_any_moment_loses_nothing(harness: Harness, moment: str):
    worker, other = harness.worker(), harness.worker()
    if moment == "queued":
        run = await harness.submit(plan(["wait:a"], ["b"]))
        harness.bells.take()
        await harness.redis.flushdb()
        await harness.age_doorbells()
        await harness.reconciler.reconcile()
        harness.engine.open("a")
    else:
        run, slot = await harness.begin(worker, plan(["wait:a"], ["b"]), "a")
        late = await harness.submit("late", run.thread_id)
        if moment == "between steps":
            worker.faults.hold("commit_step")
            harness.engine.open("a")
            await worker.faults.reached()
        await harness.redis.flushdb()
        bells = harness.bells.take()
        await asyncio.gather(*(other.answer(bell) for bell in bells))
        assert await harness.status(late.run_id) == "queued"
        if moment == "recovering":
            await worker.crash()
            await harness.recover()
            await harness.redis.flushdb()
        elif moment == "between steps":
            worker.faults.step()
        harness.engine.open("a")
        await slot
    await harness.settle(other)
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"
    await check_settled(harness.database, harness.engine)
