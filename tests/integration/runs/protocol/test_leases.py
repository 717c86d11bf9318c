"""A worker keeps what it holds, and lets go of what it lost."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from nova_workers.config import Settings
from nova_workers.ledger.runs.leases import renew_leases
from tests.requirements import proves
from tests.support.clocks import ManualClock
from tests.support.executor import Floor, Worker
from tests.support.invariants import check_settled
from tests.support.puppet import plan


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A lease of 3 s: the keeper looks at it every 0.1 s."""
    runs = settings.runs.model_copy(update={"lease_ttl_s": 3.0, "lease_renew_s": 1.0})
    return settings.model_copy(update={"runs": runs})


def _losses(worker: Worker, reason: str) -> float:
    registry: CollectorRegistry = worker.metrics.registry
    return registry.get_sample_value("nova_lease_losses_total", {"reason": reason}) or 0.0


@proves("keep.renew")
async def test_a_renewal_prolongs_lease_and_lock(floor: Floor):
    worker = floor.worker()
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    await floor.database.execute("UPDATE runs SET lease_expires_at = now() + interval '0.5 seconds'")
    await floor.redis.pexpire(f"nova:lock:thread:{run.thread_id}", 500)
    await worker.keeper.renew()
    left_s = await floor.database.fetchval(
        "SELECT EXTRACT(EPOCH FROM lease_expires_at - now())::float8 FROM runs WHERE id = $1", run.run_id
    )
    assert 2.0 < left_s <= 3.0
    assert await floor.redis.pttl(f"nova:lock:thread:{run.thread_id}") > 2_000
    floor.puppet.open("a")
    await slot
    assert worker.keeper.held == ()


@proves("keep.renew")
async def test_the_keeper_renews_by_itself_for_as_long_as_the_run_takes(floor: Floor):
    worker = floor.worker(keeper=True)
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    first = (await floor.run(run.run_id))["lease_expires_at"]
    async with asyncio.timeout(5):
        while True:
            if (await floor.run(run.run_id))["lease_expires_at"] > first:
                break
            await asyncio.sleep(0.05)
    floor.puppet.open("a")
    await slot
    assert await floor.status(run.run_id) == "succeeded"


async def test_a_renewal_that_overtakes_its_own_release_locks_nobody_out(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    assert await worker.locks.acquire("thr_1", "mine")
    await worker.locks.release("thr_1", "mine")
    assert await worker.locks.extend([("thr_1", "mine")]) == []
    assert await other.locks.acquire("thr_1", "theirs")
    assert await worker.locks.extend([("thr_1", "mine")]) == ["thr_1"]


@proves("keep.cancel")
async def test_a_renewal_brings_a_cancel_whose_nudge_was_lost(floor: Floor):
    worker = floor.worker()
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    await worker.keeper.renew()
    await slot
    assert await floor.status(run.run_id) == "canceled"


@proves("keep.cancel")
async def test_a_renewal_brings_an_interrupt_whose_nudge_was_lost(floor: Floor):
    worker = floor.worker()
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    await floor.submit("stop", run.thread_id, on_busy="interrupt")
    await worker.keeper.renew()
    await slot
    await floor.settle(worker)
    assert await floor.status(run.run_id) == "canceled"
    await check_settled(floor.database, floor.puppet)


@proves("keep.taken", "recover.zombie")
async def test_a_worker_whose_run_was_taken_over_stops_it_and_writes_nothing(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    floor.puppet.forget("a")
    await floor.recover()
    fresh = await floor.start_next(other)
    await floor.puppet.reached("a")
    await worker.keeper.renew()
    await slot
    assert _losses(worker, "taken") == 1
    assert worker.tap.log == ["claim", "renew"]
    floor.puppet.open("a")
    await fresh
    assert await floor.status(run.run_id) == "succeeded"
    await check_settled(floor.database, floor.puppet)


@proves("keep.self-fence")
async def test_a_lease_that_is_not_renewed_for_two_thirds_of_its_life_stops_its_run(floor: Floor):
    clock = ManualClock()
    worker = floor.worker(keeper=True, clock=clock)
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    # The database hangs in the renewal; the watch must not hang with it.
    worker.tap.hold("renew")
    await worker.tap.reached()
    clock.advance(1.9)
    for _ in range(5):
        await asyncio.sleep(0.05)
    assert not slot.done()
    clock.advance(0.2)
    async with asyncio.timeout(5):
        await slot
    assert _losses(worker, "not_renewed") == 1
    assert worker.tap.log == ["claim"]
    assert await floor.status(run.run_id) == "running"
    floor.puppet.open("a")
    other = floor.worker()
    await floor.recover()
    await floor.settle(other)
    assert await floor.status(run.run_id) == "succeeded"


async def test_the_time_that_a_claim_takes_is_part_of_its_lease(floor: Floor):
    clock = ManualClock()
    worker = floor.worker(clock=clock)
    await floor.submit(plan(doors={0: "a"}))
    (bell,) = floor.bells.take()
    worker.tap.hold("claim")
    slot = worker.answer(bell)
    await worker.tap.reached()
    clock.advance(1.5)
    worker.tap.step()
    await floor.puppet.reached("a")
    (held,) = worker.keeper.held
    assert clock.monotonic_s() - held.renewed_s == pytest.approx(1.5)
    floor.puppet.open("a")
    await slot


async def test_renewals_of_one_process_tell_which_of_its_claims_are_lost(floor: Floor):
    worker = floor.worker()
    await floor.begin(worker, plan(doors={0: "a"}), "a")
    await floor.begin(worker, plan(doors={0: "b"}), "b")
    claims = [held.claim for held in worker.keeper.held]
    await floor.database.execute("UPDATE runs SET fence = fence + 1 WHERE id = $1", claims[0].run_id)
    async with floor.database.connection() as connection:
        renewed = await renew_leases(connection, claims, 3.0)
    assert [renewal.run_id for renewal in renewed] == [claims[1].run_id]


async def test_an_end_that_is_being_written_is_no_lost_lease(floor: Floor):
    worker = floor.worker()
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    worker.tap.hold("finish")
    floor.puppet.open("a")
    await worker.tap.reached()
    await floor.database.execute("UPDATE runs SET fence = fence + 1 WHERE id = $1", run.run_id)
    await worker.keeper.renew()
    assert _losses(worker, "taken") == 0
    worker.tap.step()
    await slot
    assert await floor.status(run.run_id) == "running"
