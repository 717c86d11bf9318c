"""A worker that is to end hands its runs back; another goes on where it stopped."""

from __future__ import annotations

from tests.requirements import proves
from tests.support.executor import Floor
from tests.support.invariants import check_settled
from tests.support.puppet import plan


@proves("drain.boundary")
async def test_a_draining_worker_hands_a_run_back_at_its_next_step_boundary(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run, slot = await floor.begin(worker, plan(["wait:a"], ["b"]), "a")
    worker.drain()
    floor.puppet.open("a")
    await slot
    row = await floor.run(run.run_id)
    assert (row["status"], row["losses"], row["worker_id"]) == ("queued", 0, None)
    assert [bell.run_id for bell in floor.bells.waiting] == [run.run_id]
    await floor.settle(other)
    row = await floor.run(run.run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 2)
    assert [each.tool for each in floor.puppet.executions] == ["wait:a", "b"]
    assert worker.metrics.registry.get_sample_value("nova_lease_losses_total", {"reason": "taken"}) is None
    await check_settled(floor.database, floor.puppet)


@proves("drain.mid-step")
async def test_after_the_grace_a_run_is_stopped_in_mid_step_and_handed_back(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run, slot = await floor.begin(worker, plan(["b"], ["quick", "wait:a"]), "a")
    worker.drain()
    worker.stop_in_mid_step()
    await slot
    assert await floor.status(run.run_id) == "queued"
    await floor.settle(other)
    assert await floor.status(run.run_id) == "succeeded"
    assert [each.tool for each in floor.puppet.executions] == ["b", "quick", "wait:a"]
    await check_settled(floor.database, floor.puppet)


@proves("drain.mid-step")
async def test_a_response_that_a_drain_cuts_off_is_asked_for_again(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run, slot = await floor.begin(worker, plan(["b"], doors={1: "a"}), "a")
    worker.drain()
    worker.stop_in_mid_step()
    await slot
    floor.puppet.open("a")
    await floor.settle(other)
    row = await floor.run(run.run_id)
    assert (row["status"], row["result_text"]) == ("succeeded", "Step 1. Done.")
    assert [message["kind"] for message in await floor.transcript(run.run_id)] == [
        "query",
        "response",
        "tool_results",
        "response",
    ]
    await check_settled(floor.database, floor.puppet)


@proves("drain.no-claims")
async def test_a_draining_worker_claims_nothing_and_passes_the_bell_on(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    worker.drain()
    run = await floor.submit("hello")
    (bell,) = floor.bells.take()
    await worker.answer(bell)
    assert worker.tap.log == []
    assert floor.bells.waiting == [bell]
    await floor.settle(other)
    assert await floor.status(run.run_id) == "succeeded"


@proves("drain.boundary")
async def test_a_claim_that_was_on_its_way_when_the_drain_began_stops_at_its_first_boundary(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run = await floor.submit(plan(["a"], ["b"]))
    (bell,) = floor.bells.take()
    worker.tap.hold("claim")
    slot = worker.answer(bell)
    await worker.tap.reached()
    worker.drain()
    worker.tap.step()
    await slot
    assert await floor.status(run.run_id) == "queued"
    assert [each.tool for each in floor.puppet.executions] == ["a"]
    await floor.settle(other)
    assert await floor.status(run.run_id) == "succeeded"


async def test_the_last_step_of_a_turn_at_its_limit_is_not_lost_to_a_drain(floor: Floor):
    worker = floor.worker()
    run, slot = await floor.begin(worker, plan(["wait:a"], ["b"]), "a", max_turns=1)
    worker.drain()
    floor.puppet.open("a")
    await slot
    row = await floor.run(run.run_id)
    assert (row["status"], row["stop_reason"]) == ("succeeded", "tool_use")
    assert await floor.database.fetchval("SELECT status FROM tool_calls") == "completed"


async def test_a_run_that_is_canceled_while_it_is_handed_back_is_canceled_by_its_next_claim(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run, slot = await floor.begin(worker, plan(["wait:a"], ["b"]), "a")
    worker.drain()
    worker.tap.hold("requeue")
    floor.puppet.open("a")
    await worker.tap.reached()
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    worker.tap.step()
    await slot
    await floor.settle(other)
    assert await floor.status(run.run_id) == "canceled"
    await check_settled(floor.database, floor.puppet)


@proves("journal.lost-reply")
async def test_a_hand_back_whose_reply_was_lost_still_rings_for_the_next_worker(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run, slot = await floor.begin(worker, plan(["wait:a"], ["b"]), "a")
    worker.drain()
    worker.tap.plan("lose_reply", "requeue")
    floor.puppet.open("a")
    await slot
    assert [bell.run_id for bell in floor.bells.waiting] == [run.run_id]
    await floor.settle(other)
    assert (await floor.run(run.run_id))["attempt"] == 2
    assert await floor.status(run.run_id) == "succeeded"


@proves("submit.steer")
async def test_steering_that_joined_as_the_drain_began_is_heard_by_the_next_worker_and_told_to_its_followers(
    floor: Floor,
):
    worker, other = floor.worker(), floor.worker()
    run, slot = await floor.begin(worker, plan(["wait:a"]), "a")
    steering = await floor.submit("also", run.thread_id, on_busy="steer")
    floor.bells.take()
    worker.tap.hold("commit_step")
    floor.puppet.open("a")
    await worker.tap.reached()
    worker.drain()
    worker.tap.step()
    await slot
    await worker.publisher.drain(5)
    assert await floor.redis.xlen(f"nova:run:{steering.run_id}:events") == 1
    await floor.settle(other)
    assert floor.puppet.asked[-1].texts[-1] == "also"
    await check_settled(floor.database, floor.puppet)
