"""Claims: duplicate doorbells, racing workers, unavailable Redis."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from nova_workers.base.errors import NewerValue, Unavailable
from nova_workers.base.ids import new_id
from nova_workers.base.keys import broker_queue, thread_lock
from nova_workers.contracts.runs import Claim
from nova_workers.domain.runs.rules import executor
from nova_workers.domain.runs.sql.claim import claim_next
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness
from tests.support.waiting import until


@proves("claim.duplicate-doorbell")
async def test_a_doorbell_that_comes_twice_executes_once(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    accepted = await harness.submit("hello")
    (bell,) = harness.bells.take()
    await asyncio.gather(worker.answer(bell), other.answer(bell), worker.answer(bell))
    await worker.answer(bell)
    row = await harness.run(accepted.run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 1)
    assert len(harness.engine.model_calls) == 1


async def test_a_doorbell_for_an_ended_run_finds_nothing(harness: Harness):
    worker = harness.worker()
    await harness.submit("hello")
    (bell,) = harness.bells.take()
    await worker.answer(bell)
    worker.faults.log.clear()
    await worker.answer(bell)
    assert worker.faults.log == ["claim", "entitled"]


@proves("claim.exclusive", "claim.fence")
async def test_one_of_several_workers_that_race_for_a_thread_wins(harness: Harness):
    """The lock is left out: the claim's own guard decides."""
    thread_id = await harness.thread()
    for round_ in range(20):
        await harness.submit("hello", thread_id)

        async def claim(name: str):
            async with harness.database.connection() as connection:
                return await claim_next(connection, thread_id, worker_id=name, lease_ttl_s=30, max_attempts=5)

        claims = [claim for claim in await asyncio.gather(*(claim(f"wkr_{at}") for at in range(6))) if claim]
        assert len(claims) == 1
        assert isinstance(claims[0], Claim)
        assert claims[0].fence == round_ + 1
        await harness.database.execute("UPDATE runs SET status = 'failed', lease_expires_at = NULL")
        await harness.database.execute("UPDATE threads SET active_run_id = NULL")


@proves("claim.exclusive", "claim.fifo")
async def test_many_workers_and_doubled_bells_keep_each_thread_in_order(harness: Harness):
    workers = [harness.worker() for _ in range(3)]
    threads = [await harness.thread() for _ in range(3)]
    runs = [await harness.submit(plan(["x"], id=f"{at}"), thread_id) for at in range(5) for thread_id in threads]
    bells = harness.bells.take()
    await asyncio.gather(*(workers[at % 3].answer(bell) for at, bell in enumerate([*reversed(bells), *bells])))
    await harness.settle(*workers)
    assert {await harness.status(run.run_id) for run in runs} == {"succeeded"}
    started = await harness.database.fetch("SELECT thread_id, seq, attempt FROM runs ORDER BY started_at")
    for thread_id in threads:
        assert [row["seq"] for row in started if row["thread_id"] == thread_id] == [1, 2, 3, 4, 5]
    assert {row["attempt"] for row in started} == {1}


@proves("claim.busy-lock")
async def test_a_worker_looks_again_if_another_worker_tried_its_lock(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    await harness.submit("hello")
    (bell,) = harness.bells.take()
    worker.faults.hold("finish")
    slot = worker.answer(bell)
    await worker.faults.reached()
    await other.answer(bell)
    assert "claim" not in other.faults.log
    worker.faults.step()
    await slot
    assert worker.faults.log == ["claim", "finish", "claim"]


@proves("claim.busy-lock")
async def test_a_release_reports_an_attempt_on_the_lock_also_if_its_first_reply_is_lost(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    assert await worker.locks.acquire("thr_1", "mine")
    assert not await other.locks.acquire("thr_1", "theirs")
    assert await worker.locks.release("thr_1", "mine")
    assert await worker.locks.release("thr_1", "mine")
    assert await other.locks.acquire("thr_1", "theirs")
    assert not await worker.locks.release("thr_1", "mine")
    assert not await other.locks.release("thr_1", "theirs")


@proves("claim.busy-lock")
async def test_a_doorbell_behind_a_backlog_takes_no_lock_unless_it_has_it_already(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    queue = broker_queue("interactive")
    await harness.redis.lpush(queue, b"one", b"two")
    take = partial(worker.locks.acquire_without_backlog, "thr_1", queue="interactive")
    assert await take("mine", most_waiting=1) is None
    # The thread was neither locked nor flagged.
    assert await other.locks.acquire("thr_1", "theirs")
    assert await take("mine", most_waiting=1) is None
    assert not await other.locks.release("thr_1", "theirs")
    assert await take("mine", most_waiting=2)
    # A repetition after a lost reply, with more doorbells by then.
    assert await take("mine", most_waiting=1)
    await harness.redis.delete(queue)


@proves("claim.busy-lock", "redis.restart")
async def test_a_lock_that_redis_did_not_release_is_released_once_it_answers(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    worker.faults.redis_away = True
    harness.engine.open("a")
    await slot
    assert await harness.redis.exists(thread_lock(run.thread_id))
    worker.faults.redis_away = False
    await until(lambda: _is_free(harness, run.thread_id))


async def _is_free(harness: Harness, thread_id: str) -> bool:
    return not await harness.redis.exists(thread_lock(thread_id))


async def test_a_doorbell_that_the_database_fails_is_rung_again(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    worker = harness.worker()
    await harness.submit("hello")
    (bell,) = harness.bells.take()

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("The database takes no writes.", server="postgres", may_be_written=False)

    with monkeypatch.context() as away:
        away.setattr(executor, "claim_next", fail)
        await worker.answer(bell)
    assert harness.bells.take() == [bell]


@proves("claim.without-redis", "claim.exclusive")
async def test_without_redis_runs_are_claimed_and_each_once(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    worker.faults.redis_away = other.faults.redis_away = True
    runs = [await harness.submit(plan(["x"], id=str(at))) for at in range(4)]
    bells = harness.bells.take()
    await asyncio.gather(*(each.answer(bell) for bell in bells for each in (worker, other)))
    assert {await harness.status(run.run_id) for run in runs} == {"succeeded"}
    assert len(harness.engine.executions) == 4


@proves("claim.fence", "redis.wipe")
async def test_fences_grow_on_after_redis_was_wiped(harness: Harness):
    worker = harness.worker()
    first = await harness.submit("one")
    await harness.settle(worker)
    await harness.redis.flushdb()
    second = await harness.submit("two", first.thread_id)
    await harness.settle(worker)
    assert [(await harness.run(run.run_id))["fence"] for run in (first, second)] == [1, 2]


async def test_a_run_of_a_version_keeps_it_when_the_agent_changes(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, _ = await harness.begin(worker, plan(["wait:a"]), "a")
    await harness.database.execute("UPDATE agents SET version = 2 WHERE id = 'planned'")
    await harness.database.execute(
        "INSERT INTO agent_versions (tenant_id, agent_id, version, spec) SELECT tenant_id, id, 2, spec FROM agents"
        " WHERE id = 'planned'"
    )
    await worker.crash()
    await harness.recover()
    await harness.settle(other)
    assert (await harness.run(run.run_id))["agent_version"] == 1


async def test_a_claim_of_a_thread_without_queued_runs_finds_nothing(harness: Harness):
    worker = harness.worker()
    async with harness.database.connection() as connection:
        for thread_id in (await harness.thread(), new_id("thr")):
            assert (
                await claim_next(connection, thread_id, worker_id=worker.name, lease_ttl_s=30, max_attempts=5) is None
            )


@proves("upgrade.newer")
async def test_a_run_whose_agent_a_later_release_wrote_is_left_to_it(harness: Harness):
    accepted = await harness.submit("hello")
    later = "UPDATE agent_versions SET spec = spec || :more"
    await harness.database.execute(later, more={"later_limit": 5})

    async def claim():
        async with harness.database.connection() as connection:
            return await claim_next(connection, accepted.thread_id, worker_id="wkr_1", lease_ttl_s=30, max_attempts=5)

    with pytest.raises(NewerValue, match="'later_limit'"):
        await claim()
    row = await harness.run(accepted.run_id)
    assert (row["status"], row["losses"], row["lease_expires_at"]) == ("queued", 0, None)
    await harness.database.execute(later, more={"later_limit": None})
    assert isinstance(await claim(), Claim)
