"""Who may execute a run: doorbells that double, workers that race, Redis that is away."""

from __future__ import annotations

import asyncio

from nova_workers.contracts.runs import Claim
from nova_workers.ids import new_id
from nova_workers.ledger.runs.claim import claim_next
from tests.requirements import proves
from tests.support.executor import Floor
from tests.support.puppet import plan


@proves("claim.duplicate-doorbell")
async def test_a_doorbell_that_comes_twice_executes_once(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    accepted = await floor.submit("hello")
    (bell,) = floor.bells.take()
    await asyncio.gather(worker.answer(bell), other.answer(bell), worker.answer(bell))
    await worker.answer(bell)
    row = await floor.run(accepted.run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 1)
    assert len(floor.puppet.asked) == 1


async def test_a_doorbell_for_a_run_that_is_over_finds_nothing(floor: Floor):
    worker = floor.worker()
    await floor.submit("hello")
    (bell,) = floor.bells.take()
    await worker.answer(bell)
    worker.tap.log.clear()
    await worker.answer(bell)
    assert worker.tap.log == ["claim", "entitled"]


@proves("claim.exclusive", "claim.fence")
async def test_of_workers_that_race_for_a_thread_one_wins(floor: Floor):
    """The lock is left out: the claim's own guard decides."""
    thread_id = await floor.thread()
    for round_ in range(20):
        await floor.submit("hello", thread_id)

        async def claim(name: str):
            async with floor.database.connection() as connection:
                return await claim_next(connection, thread_id, worker_id=name, lease_ttl_s=30, max_attempts=5)

        claims = [claim for claim in await asyncio.gather(*(claim(f"wkr_{at}") for at in range(6))) if claim]
        assert len(claims) == 1
        assert isinstance(claims[0], Claim)
        assert claims[0].fence == round_ + 1
        await floor.database.execute("UPDATE runs SET status = 'failed', lease_expires_at = NULL")
        await floor.database.execute("UPDATE threads SET active_run_id = NULL")


@proves("claim.exclusive", "claim.fifo")
async def test_many_workers_and_doubled_bells_keep_each_thread_in_order(floor: Floor):
    workers = [floor.worker() for _ in range(3)]
    threads = [await floor.thread() for _ in range(3)]
    runs = [await floor.submit(plan(["x"], id=f"{at}"), thread_id) for at in range(5) for thread_id in threads]
    bells = floor.bells.take()
    await asyncio.gather(*(workers[at % 3].answer(bell) for at, bell in enumerate([*reversed(bells), *bells])))
    await floor.settle(*workers)
    assert {await floor.status(run.run_id) for run in runs} == {"succeeded"}
    started = await floor.database.fetch("SELECT thread_id, seq, attempt FROM runs ORDER BY started_at")
    for thread_id in threads:
        assert [row["seq"] for row in started if row["thread_id"] == thread_id] == [1, 2, 3, 4, 5]
    assert {row["attempt"] for row in started} == {1}


@proves("claim.knock")
async def test_a_worker_at_whose_lock_was_knocked_looks_once_more_before_it_leaves(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    await floor.submit("hello")
    (bell,) = floor.bells.take()
    worker.tap.hold("finish")
    slot = worker.answer(bell)
    await worker.tap.reached()
    await other.answer(bell)
    assert "claim" not in other.tap.log
    worker.tap.step()
    await slot
    assert worker.tap.log == ["claim", "finish", "claim"]


@proves("claim.knock")
async def test_a_release_tells_of_a_knock_once(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    assert await worker.locks.acquire("thr_1", "mine")
    assert not await other.locks.acquire("thr_1", "theirs")
    assert await worker.locks.release("thr_1", "mine")
    assert not await worker.locks.release("thr_1", "mine")


@proves("claim.without-redis", "claim.exclusive")
async def test_without_redis_runs_are_claimed_and_each_once(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    worker.tap.redis_away = other.tap.redis_away = True
    runs = [await floor.submit(plan(["x"], id=str(at))) for at in range(4)]
    bells = floor.bells.take()
    await asyncio.gather(*(each.answer(bell) for bell in bells for each in (worker, other)))
    assert {await floor.status(run.run_id) for run in runs} == {"succeeded"}
    assert len(floor.puppet.executions) == 4


@proves("claim.fence", "redis.wipe")
async def test_fences_grow_on_after_redis_was_wiped(floor: Floor):
    worker = floor.worker()
    first = await floor.submit("one")
    await floor.settle(worker)
    await floor.redis.flushdb()
    second = await floor.submit("two", first.thread_id)
    await floor.settle(worker)
    assert [(await floor.run(run.run_id))["fence"] for run in (first, second)] == [1, 2]


async def test_a_run_of_a_version_keeps_it_when_the_agent_changes(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run, _ = await floor.begin(worker, plan(["wait:a"]), "a")
    await floor.database.execute("UPDATE agents SET version = 2 WHERE id = 'puppet'")
    await floor.database.execute(
        "INSERT INTO agent_versions (tenant_id, agent_id, version, spec) SELECT tenant_id, id, 2, spec FROM agents"
        " WHERE id = 'puppet'"
    )
    await worker.crash()
    await floor.recover()
    await floor.settle(other)
    assert (await floor.run(run.run_id))["agent_version"] == 1


async def test_a_claim_of_a_thread_without_a_line_finds_nothing(floor: Floor):
    worker = floor.worker()
    async with floor.database.connection() as connection:
        for thread_id in (await floor.thread(), new_id("thr")):
            assert (
                await claim_next(connection, thread_id, worker_id=worker.name, lease_ttl_s=30, max_attempts=5) is None
            )
