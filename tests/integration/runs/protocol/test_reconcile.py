"""The reconciler finds what nobody looks after."""

from __future__ import annotations

import asyncio

import pytest

from nova_workers.keys import broker_queue
from tests.requirements import proves
from tests.support.executor import AGENT, Floor
from tests.support.invariants import check_settled
from tests.support.puppet import plan


@proves("recover.doorbell")
async def test_a_lost_doorbell_is_rung_again_once_it_is_old(floor: Floor):
    run = await floor.submit("hello")
    (bell,) = floor.bells.take()
    assert (await floor.reconciler.reconcile()).rerung == 0
    await floor.age_doorbells()
    assert (await floor.reconciler.reconcile()).rerung == 1
    assert floor.bells.waiting == [bell]
    # Marked as rung: the next pass leaves it alone.
    assert (await floor.reconciler.reconcile()).rerung == 0
    assert await floor.status(run.run_id) == "queued"


@proves("recover.doorbell")
async def test_the_bells_of_a_mass_firing_are_rung_again_in_one_pass(floor: Floor):
    await floor.submit("hello", queue="background")
    # More than one batch, each in a thread of its own.
    await floor.database.execute(
        "INSERT INTO threads (id, tenant_id, agent_id, next_seq)"
        " SELECT 'thr_' || n, $1, $2, 2 FROM generate_series(1, 1500) n",
        floor.tenant_id,
        AGENT,
    )
    await floor.database.execute(
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, on_busy, queue, source)"
        " SELECT 'run_' || n, r.tenant_id, 'thr_' || n, r.agent_id, 1, r.content, r.on_busy, r.queue, r.source"
        "   FROM runs r, generate_series(1, 1500) n"
    )
    floor.bells.take()
    await floor.age_doorbells()
    assert (await floor.reconciler.reconcile()).rerung == 1501
    assert len({bell.run_id for bell in floor.bells.take()}) == 1501
    assert (await floor.reconciler.reconcile()).rerung == 0


@proves("recover.doorbell")
async def test_with_a_backlog_in_the_broker_nothing_is_rung_again_before_its_time(floor: Floor):
    await floor.submit("hello")
    await floor.submit("later", queue="background")
    floor.bells.take()
    await floor.redis.lpush(broker_queue("interactive"), b"a doorbell that nobody took yet")
    await floor.database.execute("UPDATE runs SET rang_at = now() - interval '30 seconds'")
    await floor.reconciler.reconcile()
    assert [bell.queue for bell in floor.bells.take()] == ["background"]
    await floor.age_doorbells()
    await floor.reconciler.reconcile()
    assert [bell.queue for bell in floor.bells.take()] == ["interactive", "background"]


async def test_only_the_first_of_a_line_is_rung_for_and_none_of_a_busy_thread(floor: Floor):
    worker = floor.worker()
    active, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    await floor.submit("behind it", active.thread_id)
    first = await floor.submit("first")
    await floor.submit("second", first.thread_id)
    floor.bells.take()
    await floor.age_doorbells()
    assert (await floor.reconciler.reconcile()).rerung == 1
    assert [bell.run_id for bell in floor.bells.waiting] == [first.run_id]
    floor.puppet.open("a")
    await slot


@proves("recover.expired")
async def test_a_run_whose_lease_ran_out_goes_before_those_that_wait(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run, _ = await floor.begin(worker, plan(["wait:a"]), "a")
    waiting = await floor.submit("next", run.thread_id)
    urgent = await floor.submit("urgent", run.thread_id, on_busy="enqueue")
    floor.bells.take()
    await worker.crash()
    assert await floor.recover() == 1
    await floor.settle(other)
    order = [row["id"] for row in await floor.database.fetch("SELECT id FROM runs ORDER BY finished_at")]
    assert order == [run.run_id, waiting.run_id, urgent.run_id]
    await check_settled(floor.database, floor.puppet)


@proves("recover.expired")
async def test_a_lease_that_lives_is_left_alone(floor: Floor):
    worker = floor.worker()
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    assert (await floor.reconciler.reconcile()).recovered == 0
    assert await floor.status(run.run_id) == "running"
    floor.puppet.open("a")
    await slot


@proves("recover.twice", "beat.safe-to-double")
async def test_many_reconcilers_at_once_recover_and_ring_each_run_once(floor: Floor):
    worker = floor.worker()
    runs = [await floor.submit(plan(doors={0: f"door {at}"})) for at in range(6)]
    slots = [worker.answer(bell) for bell in floor.bells.take()]
    for at in range(6):
        await floor.puppet.reached(f"door {at}")
    await worker.crash()
    await asyncio.gather(*slots, return_exceptions=True)
    for at in range(6):
        floor.puppet.open(f"door {at}")
    lost = [await floor.submit("a lost doorbell") for _ in range(6)]
    floor.bells.take()
    await floor.expire_leases()
    await floor.age_doorbells()
    passes = await asyncio.gather(*(floor.reconciler.reconcile() for _ in range(4)))
    assert sum(each.rerung for each in passes) == 6
    assert sum(each.recovered for each in passes) == len(runs)
    assert sorted(bell.run_id for bell in floor.bells.waiting) == sorted(run.run_id for run in (*runs, *lost))
    await floor.settle(floor.worker())
    await check_settled(floor.database, floor.puppet)


async def test_a_run_that_somebody_writes_to_is_left_to_the_next_pass(floor: Floor):
    """The reconciler waits for nobody, so it can be part of no deadlock."""
    worker = floor.worker()
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    await floor.expire_leases()
    async with floor.database.transaction() as connection:
        await connection.execute("SELECT 1 FROM runs WHERE id = $1 FOR UPDATE", run.run_id)
        async with asyncio.timeout(5):
            assert (await floor.reconciler.reconcile()).recovered == 0
    assert (await floor.reconciler.reconcile()).recovered == 1
    await worker.crash()
    await slot


async def test_due_effects_are_rung_for(floor: Floor):
    worker = floor.worker()
    await floor.submit("hello")
    await floor.settle(worker)
    assert floor.bells.effects_rung == 1
    assert (await floor.reconciler.reconcile()).effects_due
    assert floor.bells.effects_rung == 2


@pytest.mark.parametrize("moment", ["queued", "running", "between steps", "recovering"])
@proves("redis.wipe")
async def test_wiping_redis_at_any_moment_loses_nothing(floor: Floor, moment: str):
    worker, other = floor.worker(), floor.worker()
    if moment == "queued":
        run = await floor.submit(plan(["wait:a"], ["b"]))
        floor.bells.take()
        await floor.redis.flushdb()
        await floor.age_doorbells()
        await floor.reconciler.reconcile()
        floor.puppet.open("a")
    else:
        run, slot = await floor.begin(worker, plan(["wait:a"], ["b"]), "a")
        late = await floor.submit("late", run.thread_id)
        if moment == "between steps":
            worker.tap.hold("commit_step")
            floor.puppet.open("a")
            await worker.tap.reached()
        await floor.redis.flushdb()
        bells = floor.bells.take()
        await asyncio.gather(*(other.answer(bell) for bell in bells))
        assert await floor.status(late.run_id) == "queued"
        if moment == "recovering":
            await worker.crash()
            await floor.recover()
            await floor.redis.flushdb()
        elif moment == "between steps":
            worker.tap.step()
        floor.puppet.open("a")
        await slot
    await floor.settle(other)
    await floor.age_doorbells()
    await floor.reconciler.reconcile()
    await floor.settle(other)
    assert await floor.status(run.run_id) == "succeeded"
    await check_settled(floor.database, floor.puppet)
