"""A worker renews the leases that it holds, and stops runs whose lease it lost."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from nova_workers.base.config import Settings
from nova_workers.domain.runs.sql.leases import renew_leases
from tests.requirements import proves
from tests.support.harness.invariants import check_settled
from tests.support.harness.manual_clock import ManualClock
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness, Worker
from tests.support.waiting import until


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A lease of 30 s: the keeper looks at it every 1 s."""
    runs = settings.runs.model_copy(update={"lease_ttl_s": 30.0, "lease_renew_s": 1.0})
    return settings.model_copy(update={"runs": runs})


def _losses(worker: Worker, reason: str) -> float:
    registry: CollectorRegistry = worker.metrics.registry
    return registry.get_sample_value("nova_lease_losses_total", {"reason": reason}) or 0.0


@proves("keep.renew")
async def test_a_renewal_prolongs_lease_and_lock(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    lock = f"nova:lock:thread:{run.thread_id}"
    lease, lock_ms = (await harness.run(run.run_id))["lease_expires_at"], await harness.redis.pexpiretime(lock)
    await worker.keeper.renew()
    # Moments and not what is left of them, which a slow machine may have used up.
    assert (await harness.run(run.run_id))["lease_expires_at"] > lease
    assert await harness.redis.pexpiretime(lock) > lock_ms
    harness.engine.open("a")
    await slot
    assert worker.keeper.held == ()


@proves("keep.renew")
async def test_the_keeper_renews_until_the_run_ends(harness: Harness):
    worker = harness.worker(keeper=True)
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    first = (await harness.run(run.run_id))["lease_expires_at"]

    async def renewed() -> bool:
        return (await harness.run(run.run_id))["lease_expires_at"] > first

    await until(renewed)
    harness.engine.open("a")
    await slot
    assert await harness.status(run.run_id) == "succeeded"


async def test_a_renewal_that_overtakes_its_own_release_leaves_no_lock(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    assert await worker.locks.acquire("thr_1", "mine")
    await worker.locks.release("thr_1", "mine")
    assert await worker.locks.extend([("thr_1", "mine")]) == []
    assert await other.locks.acquire("thr_1", "theirs")
    assert await worker.locks.extend([("thr_1", "mine")]) == ["thr_1"]


@proves("keep.cancel")
async def test_a_renewal_returns_a_cancel_whose_notification_was_lost(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    await worker.keeper.renew()
    await slot
    assert await harness.status(run.run_id) == "canceled"


@proves("keep.cancel")
async def test_a_renewal_returns_an_interrupt_whose_notification_was_lost(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    await harness.submit("stop", run.thread_id, on_busy="interrupt")
    await worker.keeper.renew()
    await slot
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "canceled"
    await check_settled(harness.database, harness.engine)


@proves("keep.taken", "recover.zombie")
async def test_a_worker_whose_run_was_taken_over_stops_it_and_writes_nothing(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    harness.engine.forget("a")
    await harness.recover()
    fresh = await harness.start_next(other)
    await harness.engine.reached("a")
    await worker.keeper.renew()
    await slot
    assert _losses(worker, "taken") == 1
    assert worker.faults.log == ["claim", "renew"]
    harness.engine.open("a")
    await fresh
    assert await harness.status(run.run_id) == "succeeded"
    await check_settled(harness.database, harness.engine)


@proves("keep.self-fence")
async def test_a_lease_that_is_not_renewed_for_two_thirds_of_its_life_stops_its_run(harness: Harness):
    clock = ManualClock()
    worker = harness.worker(keeper=True, clock=clock)
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    # The database hangs in the renewal; the watch must not hang with it.
    worker.faults.hold("renew")
    await worker.faults.reached()
    clock.advance(19)
    await clock.read_again()
    assert not slot.done()
    clock.advance(2)
    async with asyncio.timeout(60):
        await slot
    assert _losses(worker, "not_renewed") == 1
    assert worker.faults.log == ["claim"]
    assert await harness.status(run.run_id) == "running"
    harness.engine.open("a")
    other = harness.worker()
    await harness.recover()
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"


async def test_the_time_that_a_claim_takes_is_part_of_its_lease(harness: Harness):
    clock = ManualClock()
    worker = harness.worker(clock=clock)
    await harness.submit(plan(doors={0: "a"}))
    (bell,) = harness.bells.take()
    worker.faults.hold("claim")
    slot = worker.answer(bell)
    await worker.faults.reached()
    clock.advance(15)
    worker.faults.step()
    await harness.engine.reached("a")
    (held,) = worker.keeper.held
    assert clock.monotonic_s() - held.renewed_s == pytest.approx(15)
    harness.engine.open("a")
    await slot


async def test_a_renewal_returns_which_claims_of_the_process_are_lost(harness: Harness):
    worker = harness.worker()
    await harness.begin(worker, plan(doors={0: "a"}), "a")
    await harness.begin(worker, plan(doors={0: "b"}), "b")
    claims = [held.claim for held in worker.keeper.held]
    await harness.database.execute("UPDATE runs SET fence = fence + 1 WHERE id = :run_id", run_id=claims[0].run_id)
    async with harness.database.connection() as connection:
        renewed = await renew_leases(connection, claims, 3.0)
    assert [renewal.run_id for renewal in renewed] == [claims[1].run_id]


async def test_a_run_whose_end_is_being_written_has_not_lost_its_lease(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    worker.faults.hold("finish")
    harness.engine.open("a")
    await worker.faults.reached()
    await harness.database.execute("UPDATE runs SET fence = fence + 1 WHERE id = :run_id", run_id=run.run_id)
    await worker.keeper.renew()
    assert _losses(worker, "taken") == 0
    worker.faults.step()
    await slot
    assert await harness.status(run.run_id) == "running"


@proves("keep.self-fence", "recover.zombie")
async def test_no_call_begins_when_another_worker_may_hold_the_run(harness: Harness):
    clock = ManualClock()
    worker, other = harness.worker(clock=clock), harness.worker()
    run, slot = await harness.begin(worker, plan(["b"], doors={0: "a"}), "a")
    # As in a process that was stopped: nothing has looked at the lease since.
    clock.advance(25)
    harness.engine.open("a")
    await slot
    assert "commit_calls" in worker.faults.log
    assert harness.engine.executions == []
    await harness.recover()
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"
    await check_settled(harness.database, harness.engine)
