"""A run that lost two workers is suspect: no worker executes it beside others, and a committed step clears it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nova_workers.base.keys import broker_queue, thread_recheck
from nova_workers.contracts.runs import SHARED_LOSSES, Accepted, Claim, Doorbell
from nova_workers.contracts.waits import Answer
from nova_workers.domain.runs.rules.suspects import SuspectRuns, taking_from
from nova_workers.domain.runs.sql.claim import Suspect, claim_next
from nova_workers.domain.runs.sql.fairness import NextSuspects, take_suspects
from nova_workers.domain.runs.sql.fleet import Switch, pause
from nova_workers.domain.runs.sql.queued import count_queued
from nova_workers.domain.runs.sql.reads import get_run
from tests.requirements import proves
from tests.support.harness.invariants import check_settled, thread_state
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness, Worker
from tests.support.waiting import until


class _Children:
    """Children of workers in this process: each is a worker that executes one run alone."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.workers: list[Worker] = []
        self.run_ids: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.suspects = SuspectRuns(self.start, taking_from(harness.database), harness.bells, harness.metrics)

    async def start(self, bell: Doorbell) -> _Child:
        self.run_ids.append(bell.run_id)
        worker = self._harness.worker()
        self.workers.append(worker)
        self.tasks.append(asyncio.create_task(worker.executor.answer_alone(bell)))
        return _Child(worker, self.tasks[-1])

    def worker(self) -> Worker:
        """Return a worker that leaves suspects to children."""
        return self._harness.worker(suspects=self.suspects)

    async def end(self) -> None:
        """End what still executes."""
        self.suspects.drain()
        for task in self.tasks:
            task.cancel()
        await self.suspects.ended()


class _Child:
    def __init__(self, worker: Worker, task: asyncio.Task[None]) -> None:
        self._worker = worker
        self._task = task

    def make_way(self) -> None:
        self._worker.executor.make_way()

    def drain(self) -> None:
        self._worker.drain()

    async def ended(self) -> int:
        await asyncio.wait((self._task,))
        return 0


@pytest.fixture
async def children(harness: Harness) -> AsyncIterator[_Children]:
    children = _Children(harness)
    yield children
    await children.end()


async def _suspect(harness: Harness, text: str = "hello", thread_id: str | None = None) -> Accepted:
    """Return a queued run that lost its worker twice."""
    run = await harness.submit(text, thread_id)
    await _lose(harness, run, SHARED_LOSSES)
    return run


async def _lose(harness: Harness, run: Accepted, losses: int) -> None:
    await harness.database.execute(
        "UPDATE runs SET losses = :losses, attempt = :losses WHERE id = :run_id", losses=losses, run_id=run.run_id
    )


async def _claim(harness: Harness, thread_id: str, *, with_suspects: bool) -> object:
    async with harness.database.connection() as connection:
        return await claim_next(
            connection, thread_id, worker_id="w", lease_ttl_s=30, max_attempts=5, with_suspects=with_suspects
        )


@proves("recover.suspect")
async def test_a_worker_does_not_claim_a_suspect_beside_its_other_runs(harness: Harness):
    run = await _suspect(harness)
    await harness.submit("the next", run.thread_id)
    before = await thread_state(harness.database, run.thread_id)
    assert await _claim(harness, run.thread_id, with_suspects=False) == Suspect(run.run_id)
    assert await thread_state(harness.database, run.thread_id) == before
    claim = await _claim(harness, run.thread_id, with_suspects=True)
    assert isinstance(claim, Claim)
    assert (claim.run_id, claim.losses) == (run.run_id, SHARED_LOSSES)


async def test_a_run_that_lost_one_worker_is_claimed_like_any_other(harness: Harness):
    run = await harness.submit("hello")
    await _lose(harness, run, SHARED_LOSSES - 1)
    assert isinstance(await _claim(harness, run.thread_id, with_suspects=False), Claim)


@pytest.mark.parametrize("end", ["spent", "canceled", "deleted"])
async def test_a_suspect_that_is_only_to_be_ended_needs_no_child(harness: Harness, end: str):
    run = await _suspect(harness)
    match end:
        case "spent":
            await _lose(harness, run, 5)
        case "canceled":
            await harness.database.execute("UPDATE runs SET cancel_requested_at = now(), cancel_reason = 'cancel'")
        case _:
            await harness.database.execute("UPDATE threads SET deleted_at = now()")
    claim = await _claim(harness, run.thread_id, with_suspects=False)
    assert isinstance(claim, Claim)
    assert claim.max_attempts_spent == (end == "spent")


async def test_a_paused_suspect_starts_no_child(harness: Harness, children: _Children):
    await _suspect(harness)
    async with harness.database.connection() as connection:
        await pause(connection, Switch("fleet", ""), reason=None)
    await harness.settle(children.worker())
    assert children.run_ids == []


@proves("recover.suspect")
async def test_a_suspect_executes_in_a_child_and_what_is_queued_behind_it_does_not(
    harness: Harness, children: _Children
):
    worker = children.worker()
    run = await _suspect(harness, plan(["a"], doors={0: "alone"}))
    behind = await harness.submit("behind", run.thread_id)
    await worker.answer(harness.bells.take()[0])
    await harness.engine.reached("alone")
    row = await harness.run(run.run_id)
    assert (row["status"], row["worker_id"]) == ("running", children.workers[0].name)
    # Other threads are served meanwhile.
    other = await harness.submit("other")
    await harness.settle(worker)
    assert await harness.status(other.run_id) == "succeeded"
    harness.engine.open("alone")
    await harness.until(run.run_id, "succeeded")
    await harness.until(behind.run_id, "queued")
    while await harness.status(behind.run_id) != "succeeded":
        await harness.settle(worker)
    assert children.run_ids == [run.run_id]
    assert (await harness.run(behind.run_id))["worker_id"] == worker.name
    await check_settled(harness.database, harness.engine)


@proves("fair.bells", "recover.suspect")
async def test_on_a_busy_fleet_the_doorbell_of_a_suspect_starts_its_child_and_serves_another_thread(
    harness: Harness, children: _Children
):
    worker = children.worker()
    await harness.redis.lpush(broker_queue("interactive"), *["a doorbell"] * 100)  # type: ignore[misc] - redis types it as for both worlds
    suspects = [await _suspect(harness, plan(doors={0: f"alone{at}"})) for at in range(10)]
    for run in suspects:
        # Runs behind them, on threads that look free.
        await harness.submit("behind", run.thread_id)
    bells = harness.bells.take()
    healthy = [await harness.submit("healthy") for _ in range(3)]
    harness.bells.take()
    for bell in bells[:3]:
        await worker.answer(bell)
    assert [await harness.status(run.run_id) for run in healthy] == ["succeeded"] * 3
    await harness.engine.reached("alone0")
    await harness.engine.reached("alone1")
    assert children.run_ids == [run.run_id for run in suspects[:2]]


@proves("recover.suspect")
async def test_a_child_takes_its_run_although_a_worker_looks_at_the_thread_meanwhile(
    harness: Harness, children: _Children
):
    run = await _suspect(harness)
    child = harness.worker()
    assert await child.locks.acquire(run.thread_id, "of a worker")
    alone = asyncio.create_task(child.executor.answer_alone(harness.bells.take()[0]))
    await until(lambda: harness.redis.exists(thread_recheck(run.thread_id)))
    await child.locks.release(run.thread_id, "of a worker")
    await alone
    assert await harness.status(run.run_id) == "succeeded"


@proves("recover.suspect")
async def test_two_workers_with_the_same_doorbells_start_one_child_a_suspect(harness: Harness, children: _Children):
    runs = [await _suspect(harness) for _ in range(4)]
    bells = harness.bells.take()
    other = _Children(harness)
    try:
        # The second worker gets them in another order.
        for worker, order in ((children.worker(), bells), (other.worker(), bells[::-1])):
            for bell in order:
                await worker.answer(bell)
        for run in runs:
            await harness.until(run.run_id, "succeeded")
        assert sorted(children.run_ids + other.run_ids) == sorted(run.run_id for run in runs)
    finally:
        await other.end()


@proves("recover.suspect")
async def test_the_oldest_suspect_goes_first_and_one_that_died_alone_goes_last(harness: Harness):
    died, old, middle, young, healthy, paused = [await _suspect(harness) for _ in range(6)]
    await _lose(harness, died, SHARED_LOSSES + 1)
    await _lose(harness, healthy, 0)
    await harness.database.execute("UPDATE runs SET agent_id = 'scripted' WHERE id = :id", id=paused.run_id)
    async with harness.database.connection() as connection:
        await pause(connection, Switch("agent", harness.tenant_id, "scripted"), reason=None)
    threads = [run.thread_id for run in (young, healthy, died, paused, middle, old)]

    async def take(most: int) -> NextSuspects:
        async with harness.database.connection() as connection:
            return await take_suspects(connection, threads, most=most, start_s=5)

    first = await take(2)
    assert [bell.run_id for bell in first.taken] == [old.run_id, middle.run_id]
    assert first.waiting == {young.thread_id, died.thread_id}
    # What is reserved is not rung for, nor taken again.
    await harness.database.execute("UPDATE runs SET rang_at = now() - interval '1 hour' WHERE rang_at <= now()")
    harness.bells.take()
    await harness.reconciler.reconcile()
    assert {bell.run_id for bell in harness.bells.take()} == {young.run_id, died.run_id, healthy.run_id}
    second = await take(2)
    assert [bell.run_id for bell in second.taken] == [young.run_id, died.run_id]
    assert await take(2) == NextSuspects()
    # A reservation ends by itself.
    await harness.database.execute("UPDATE runs SET rang_at = now()")
    assert [bell.run_id for bell in (await take(1)).taken] == [old.run_id]


@proves("recover.cleared")
async def test_a_run_that_makes_way_goes_on_beside_others_after_the_step_that_clears_it(
    harness: Harness, children: _Children
):
    worker = children.worker()
    run = await _suspect(harness, plan(["a"], ["b"], doors={0: "alone", 1: "beside"}))
    await worker.answer(harness.bells.take()[0])
    await harness.engine.reached("alone")
    children.workers[0].executor.make_way()
    harness.engine.open("alone")
    row = await harness.until(run.run_id, "queued")
    assert row["losses"] == 0
    harness.engine.open("beside")
    while await harness.status(run.run_id) != "succeeded":
        await harness.settle(worker)
    assert (await harness.run(run.run_id))["worker_id"] == worker.name
    assert children.run_ids == [run.run_id]
    await check_settled(harness.database, harness.engine)


@proves("recover.cleared")
async def test_a_suspect_that_comes_to_wait_in_a_step_that_it_began_is_cleared(harness: Harness, children: _Children):
    worker = children.worker()
    run = await _suspect(harness, plan(["ask:Which?"]))
    await worker.answer(harness.bells.take()[0])
    assert (await harness.until(run.run_id, "waiting"))["losses"] == 0
    # So it continues beside others.
    await harness.waiting.answer(harness.tenant_id, run.run_id, None, Answer(text="This."))
    await harness.settle(worker)
    assert (await harness.run(run.run_id))["worker_id"] == worker.name
    assert await harness.status(run.run_id) == "succeeded"
    assert children.run_ids == [run.run_id]


async def test_a_wait_in_a_step_that_a_lost_worker_began_clears_nothing(harness: Harness, children: _Children):
    lost = harness.worker()
    run = await harness.submit(plan(["ask:Which?"]))
    lost.faults.hold("suspend")
    slot = await harness.start_next(lost)
    await lost.faults.reached()
    lost.faults.step("crash_before")
    await slot
    await lost.crash()
    await harness.recover()
    await _lose(harness, run, SHARED_LOSSES)
    await children.worker().answer(harness.bells.take()[0])
    assert (await harness.until(run.run_id, "waiting"))["losses"] == SHARED_LOSSES


async def test_a_run_that_makes_way_for_none_stays_in_its_child(harness: Harness, children: _Children):
    worker = children.worker()
    run = await _suspect(harness, plan(["a"], ["b"]))
    await worker.answer(harness.bells.take()[0])
    row = await harness.until(run.run_id, "succeeded")
    assert row["worker_id"] == children.workers[0].name


@proves("drain.suspects")
async def test_a_child_that_drains_requeues_its_run_without_a_loss(harness: Harness, children: _Children):
    worker = children.worker()
    run = await _suspect(harness, plan(["a"], ["b"], doors={0: "alone"}))
    await worker.answer(harness.bells.take()[0])
    await harness.engine.reached("alone")
    children.workers[0].drain()
    harness.engine.open("alone")
    row = await harness.until(run.run_id, "queued")
    assert (row["losses"], row["attempt"]) == (0, SHARED_LOSSES + 1)


@proves("recover.max-attempts")
async def test_a_run_that_ended_its_own_processes_fails_with_how_often_it_was_alone(
    harness: Harness, children: _Children
):
    worker = children.worker()
    run = await _suspect(harness)
    await _lose(harness, run, 5)
    await harness.settle(worker)
    row = await harness.run(run.run_id)
    assert (row["status"], row["error_kind"]) == ("failed", "worker_lost")
    assert "5 times" in row["error_message"]
    assert "3 times alone in a process of its own" in row["error_message"]
    assert children.run_ids == []


@proves("recover.suspect")
async def test_a_suspect_is_shown_as_such_until_it_is_cleared(harness: Harness):
    run = await _suspect(harness)
    async with harness.database.connection() as connection:
        queued = await get_run(connection, harness.tenant_id, run.run_id)
        groups = await count_queued(connection, harness.tenant_id)
    assert (queued.suspect, queued.losses) == (True, SHARED_LOSSES)
    assert queued.waiting_for == "a process of its own, since it lost its worker 2 times"
    assert [(group.reason, group.runs) for group in groups] == [("suspect", 1)]
    await harness.settle(harness.worker())
    async with harness.database.connection() as connection:
        ended = await get_run(connection, harness.tenant_id, run.run_id)
    assert (ended.status, ended.suspect, ended.losses) == ("succeeded", False, SHARED_LOSSES)
