"""A draining worker requeues its runs; another continues them."""

from __future__ import annotations

import pytest

from tests.requirements import proves
from tests.support.harness.fault_injection import Fault
from tests.support.harness.invariants import check_any_time, check_settled
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness


@proves("drain.boundary")
async def test_a_draining_worker_requeues_a_run_at_its_next_step_boundary(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"], ["b"]), "a")
    worker.drain()
    harness.engine.open("a")
    await slot
    row = await harness.run(run.run_id)
    assert (row["status"], row["losses"], row["worker_id"]) == ("queued", 0, None)
    assert [bell.run_id for bell in harness.bells.waiting] == [run.run_id]
    await harness.settle(other)
    row = await harness.run(run.run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    assert [each.tool for each in harness.engine.executions] == ["wait:a", "b"]
    assert worker.metrics.registry.get_sample_value("nova_lease_losses_total", {"reason": "taken"}) is None
    await check_settled(harness.database, harness.engine)


@proves("drain.mid-step")
async def test_after_the_grace_a_run_is_stopped_in_mid_step_and_requeued(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, slot = await harness.begin(worker, plan(["b"], ["quick", "wait:a"]), "a")
    worker.drain()
    worker.stop_in_mid_step()
    await slot
    assert await harness.status(run.run_id) == "queued"
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"
    assert [each.tool for each in harness.engine.executions] == ["b", "quick", "wait:a"]
    await check_settled(harness.database, harness.engine)


@proves("drain.mid-step")
async def test_a_response_that_a_drain_cuts_off_is_requested_again(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, slot = await harness.begin(worker, plan(["b"], doors={1: "a"}), "a")
    worker.drain()
    worker.stop_in_mid_step()
    await slot
    harness.engine.open("a")
    await harness.settle(other)
    row = await harness.run(run.run_id)
    assert (row["status"], row["result_text"]) == ("succeeded", "Step 1. Done.")
    assert [message["kind"] for message in await harness.transcript(run.run_id)] == [
        "query",
        "response",
        "tool_results",
        "response",
    ]
    await check_settled(harness.database, harness.engine)


@proves("drain.no-claims")
async def test_a_draining_worker_claims_nothing_and_passes_the_bell_on(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    worker.drain()
    run = await harness.submit("hello")
    (bell,) = harness.bells.take()
    await worker.answer(bell)
    assert worker.faults.log == []
    assert harness.bells.waiting == [bell]
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"


@proves("drain.boundary")
async def test_a_claim_that_completes_during_the_drain_stops_at_its_first_step_boundary(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run = await harness.submit(plan(["a"], ["b"]))
    (bell,) = harness.bells.take()
    worker.faults.hold("claim")
    slot = worker.answer(bell)
    await worker.faults.reached()
    worker.drain()
    worker.faults.step()
    await slot
    assert await harness.status(run.run_id) == "queued"
    assert [each.tool for each in harness.engine.executions] == ["a"]
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"


@proves("drain.mid-step")
async def test_a_claim_that_completes_after_the_grace_is_requeued_without_waiting_for_a_step(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run = await harness.submit(plan(["wait:a"]))
    (bell,) = harness.bells.take()
    worker.faults.hold("claim")
    slot = worker.answer(bell)
    await worker.faults.reached()
    worker.drain()
    worker.stop_in_mid_step()
    worker.faults.step()
    await slot
    assert await harness.status(run.run_id) == "queued"
    harness.engine.open("a")
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"


@pytest.mark.parametrize("fault", ["crash_before", "crash_after", "lose_reply", "refuse"])
@proves("drain.mid-step", "recover.expired")
async def test_a_drained_run_continues_once_whatever_happens_to_the_statement_that_requeues_it(
    harness: Harness, fault: Fault
):
    worker, other = harness.worker(), harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"], ["b"]), "a")
    waiting = await harness.submit("next", run.thread_id)
    harness.bells.take()
    worker.drain()
    worker.faults.plan(fault, "requeue")
    harness.engine.open("a")
    await slot
    await check_any_time(harness.database)
    if worker.faults.dead:
        await worker.crash()
        await harness.recover()
        await harness.age_doorbells()
        await harness.reconciler.reconcile()
    await harness.settle(other)
    for run_id, attempt in ((run.run_id, 2), (waiting.run_id, 1)):
        row = await harness.run(run_id)
        assert (row["status"], row["attempt"]) == ("succeeded", attempt)
    lost = await harness.database.fetchval("SELECT count(*) FROM run_attempts WHERE ended = 'lost'")
    assert lost == (fault == "crash_before")
    assert [each.tool for each in harness.engine.executions] == ["wait:a", "b"]
    await check_settled(harness.database, harness.engine)


@proves("drain.lock")
async def test_a_lock_whose_release_did_not_reach_redis_delays_a_drained_run_by_one_doorbell(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"], ["b"]), "a")
    worker.drain()
    worker.faults.redis_away = True
    harness.engine.open("a")
    await slot
    await harness.settle(other)
    # The doorbell ended at the lock, which nothing renews and nothing releases.
    assert (await harness.status(run.run_id), harness.bells.waiting) == ("queued", [])
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"
    await check_settled(harness.database, harness.engine)


async def test_the_last_step_of_a_turn_at_its_limit_is_not_lost_to_a_drain(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"], ["b"]), "a", max_turns=1)
    worker.drain()
    harness.engine.open("a")
    await slot
    row = await harness.run(run.run_id)
    assert (row["status"], row["stop_reason"]) == ("succeeded", "tool_use")
    assert await harness.database.fetchval("SELECT status FROM tool_calls") == "completed"


async def test_a_run_that_is_canceled_while_it_is_requeued_is_canceled_by_its_next_claim(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"], ["b"]), "a")
    worker.drain()
    worker.faults.hold("requeue")
    harness.engine.open("a")
    await worker.faults.reached()
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    worker.faults.step()
    await slot
    await harness.settle(other)
    assert await harness.status(run.run_id) == "canceled"
    await check_settled(harness.database, harness.engine)


@proves("journal.lost-reply")
async def test_a_requeue_whose_reply_was_lost_still_rings_for_the_next_worker(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"], ["b"]), "a")
    worker.drain()
    worker.faults.plan("lose_reply", "requeue")
    harness.engine.open("a")
    await slot
    assert [bell.run_id for bell in harness.bells.waiting] == [run.run_id]
    await harness.settle(other)
    assert (await harness.run(run.run_id))["attempt"] == 2
    assert await harness.status(run.run_id) == "succeeded"


@proves("submit.steer")
async def test_steering_that_joined_as_the_drain_began_reaches_the_next_worker_and_its_followers(
    harness: Harness,
):
    worker, other = harness.worker(), harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    steering = await harness.submit("also", run.thread_id, on_busy="steer")
    harness.bells.take()
    worker.faults.hold("commit_step")
    harness.engine.open("a")
    await worker.faults.reached()
    worker.drain()
    worker.faults.step()
    await slot
    await worker.publisher.drain(5)
    assert await harness.redis.xlen(f"nova:run:{steering.run_id}:events") == 1
    await harness.settle(other)
    assert harness.engine.model_calls[-1].texts[-1] == "also"
    await check_settled(harness.database, harness.engine)
