"""A worker dies between any two writes, or loses the reply to one: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio

import pytest

from nova_workers.base.errors import RunLost
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import StepRecord, ToolCall
from nova_workers.contracts.runs import Claim, Finish, TurnFacts
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.runs.sql import journal
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.runs.sql.finish import finish_run, requeue_run
from tests.requirements import proves
from tests.support.harness.fault_injection import Fault
from tests.support.harness.invariants import check_any_time, check_settled, thread_state
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness

_PLAN = plan(["a"], ["b", "again:c"])
_WRITES = [
    ("claim", 1),
    ("commit_calls", 1),
    ("commit_step", 1),
    ("commit_calls", 2),
    ("commit_result", 1),
    ("commit_result", 2),
    ("commit_step", 2),
    ("finish", 1),
]

_FACTS = TurnFacts("unified", "sandbox", {})


async def test_a_turn_has_the_writes_between_which_faults_are_injected(harness: Harness):
    worker = harness.worker()
    await harness.submit(_PLAN)
    await harness.settle(worker)
    seen = [name for name in worker.faults.log if name not in {"load_messages", "load_calls"}]
    assert seen == [name for name, _ in _WRITES]


@pytest.mark.parametrize("fault", ["crash_before", "crash_after"])
@pytest.mark.parametrize(("statement", "nth"), _WRITES)
@proves("journal.resume", "journal.once", "finish.usage-once", "finish.history", "recover.expired")
async def test_a_run_survives_a_crash_between_any_two_writes(harness: Harness, statement: str, nth: int, fault: Fault):
    worker, other = harness.worker(), harness.worker()
    worker.faults.plan(fault, statement, nth=nth)
    run = await harness.submit(_PLAN)
    await harness.settle(worker)
    assert worker.faults.dead
    await worker.crash()
    await check_any_time(harness.database)
    await harness.recover()
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    await harness.settle(other)
    row = await harness.run(run.run_id)
    assert row["status"] == "succeeded"
    await check_settled(harness.database, harness.engine)
    tools = await harness.database.fetch("SELECT tool_name, status FROM tool_calls ORDER BY sequence")
    assert [tool["tool_name"] for tool in tools] == ["a", "b", "again:c"]
    assert all(tool["status"] in {"completed", "interrupted"} for tool in tools)


@pytest.mark.parametrize(("statement", "nth"), [write for write in _WRITES if write[0] != "claim"])
@proves("journal.lost-reply", "finish.usage-once")
async def test_a_write_whose_reply_was_lost_is_repeated_and_counts_once(harness: Harness, statement: str, nth: int):
    worker = harness.worker()
    worker.faults.plan("lose_reply", statement, nth=nth)
    run = await harness.submit(_PLAN)
    waiting = await harness.submit("next", run.thread_id)
    await harness.settle(worker)
    assert worker.faults.log.count(statement) > nth
    row = await harness.run(run.run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 1)
    assert await harness.status(waiting.run_id) == "succeeded"
    assert [each.tool for each in harness.engine.executions] == ["a", "b", "again:c"]
    assert (
        await harness.database.fetchval("SELECT count(*) FROM effects WHERE run_id = :run_id", run_id=run.run_id) == 1
    )
    await check_settled(harness.database, harness.engine)


@pytest.mark.parametrize(("statement", "nth"), [write for write in _WRITES if write[0] != "claim"])
async def test_a_write_waits_for_a_database_that_is_briefly_unavailable(harness: Harness, statement: str, nth: int):
    worker = harness.worker()
    worker.faults.plan("refuse", statement, nth=nth)
    run = await harness.submit(_PLAN)
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"
    await check_settled(harness.database, harness.engine)


async def test_the_next_queued_run_is_rung_for_when_the_reply_to_a_finish_was_lost(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    waiting = await harness.submit("next", run.thread_id)
    harness.bells.take()
    worker.faults.plan("lose_reply", "finish")
    harness.engine.open("a")
    await slot
    assert [bell.run_id for bell in harness.bells.waiting] == [waiting.run_id]
    assert harness.bells.effects_rung == 1


@proves("journal.lost-reply", "submit.steer")
async def test_steering_joins_once_when_the_reply_to_its_step_was_lost(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    first = await harness.submit("one", run.thread_id, on_busy="steer")
    worker.faults.plan("lose_reply", "commit_step")
    worker.faults.plan("refuse", "commit_step", nth=2)
    harness.engine.open("a")
    await slot
    assert harness.engine.model_calls[-1].texts[-1:] == ("one",)
    assert (await harness.run(first.run_id))["merged_into"] == run.run_id
    await harness.settle(worker)
    await check_settled(harness.database, harness.engine)


async def test_steering_that_comes_between_a_lost_reply_and_its_repetition_joins_too(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    await harness.submit("one", run.thread_id, on_busy="steer")
    worker.faults.plan("lose_reply", "commit_step")
    worker.faults.hold("commit_step")
    harness.engine.open("a")
    await worker.faults.reached()
    worker.faults.step("lose_reply")
    worker.faults.hold("commit_step")
    await worker.faults.reached()
    await harness.submit("two", run.thread_id, on_busy="steer")
    worker.faults.step()
    await slot
    assert harness.engine.model_calls[-1].texts[-2:] == ("one", "two")
    assert [row["seq"] for row in await harness.transcript(run.run_id)] == [0, 1, 2, 3, 4, 5]
    await harness.settle(worker)
    await check_settled(harness.database, harness.engine)


@proves("submit.steer")
async def test_steering_that_joined_before_a_crash_is_in_the_conversation_after_it(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, _ = await harness.begin(worker, plan(["wait:a"], doors={1: "b"}), "a")
    await harness.submit("also", run.thread_id, on_busy="steer")
    harness.bells.take()
    harness.engine.open("a")
    await harness.engine.reached("b")
    await worker.crash()
    harness.engine.open("b")
    await harness.recover()
    await harness.settle(other)
    assert harness.engine.model_calls[-1].texts[-1] == "also"
    await check_settled(harness.database, harness.engine)


@proves("journal.in-flight", "journal.partial")
async def test_after_a_crash_open_calls_are_interrupted_ended_ones_kept_and_idempotent_ones_repeated(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, _ = await harness.begin(worker, plan(["quick", "wait:a", "again:idempotent", "fail:x"]), "a")
    await _until_results(harness, 3)
    # Of the ended calls one idempotent call runs again: its result was not committed when the worker died.
    await harness.database.execute(
        "UPDATE tool_calls SET status = 'pending', result = NULL WHERE tool_name = 'again:idempotent'"
    )
    await worker.crash()
    await harness.recover()
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"
    calls = await harness.database.fetch("SELECT tool_name, status FROM tool_calls ORDER BY sequence")
    assert [tuple(call) for call in calls] == [
        ("quick", "completed"),
        ("wait:a", "interrupted"),
        ("again:idempotent", "completed"),
        ("fail:x", "failed"),
    ]
    executions = [each.tool for each in harness.engine.executions]
    assert sorted(executions) == ["again:idempotent", "again:idempotent", "fail:x", "quick", "wait:a"]
    heard = harness.engine.model_calls[-1].texts[-1]
    assert "result of quick" in heard
    assert "interrupted" in heard
    await check_settled(harness.database, harness.engine)


@proves("recover.max-attempts")
async def test_a_run_that_loses_its_worker_too_often_fails_with_that_reason(harness: Harness):
    run = await harness.submit(plan(["x"], doors={1: "never"}))
    for _ in range(harness.settings.runs.max_attempts):
        worker = harness.worker()
        (bell,) = harness.bells.take()
        slot = worker.answer(bell)
        await harness.engine.reached("never")
        harness.engine.forget("never")
        await worker.crash()
        await slot
        await harness.recover()
    other = harness.worker()
    await harness.settle(other)
    row = await harness.run(run.run_id)
    assert (row["status"], row["error_kind"], row["losses"]) == ("failed", "worker_lost", 5)
    assert "5 times" in row["error_message"]
    assert row["result_text"] == "Step 0. "
    await check_settled(harness.database, harness.engine)


@proves("recover.cleared")
async def test_a_run_that_commits_a_step_after_each_lost_worker_is_never_spent(harness: Harness):
    worker = harness.worker()
    lost = harness.settings.runs.max_attempts + 1
    doors = {at + 1: f"d{at}" for at in range(lost)}
    run = await harness.submit(plan(*([f"t{at}"] for at in range(lost)), doors=doors))
    for at in range(lost):
        slot = await harness.start_next(worker)
        await harness.engine.reached(f"d{at}")
        assert (await harness.run(run.run_id))["losses"] == 0
        await worker.crash()
        await slot
        # For the next attempt alone: this one would go on, and reach the next door before its step is committed.
        harness.engine.open(f"d{at}")
        await harness.recover()
        assert (await harness.run(run.run_id))["losses"] == 1
        worker = harness.worker()
    await harness.settle(worker)
    row = await harness.run(run.run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", lost + 1)
    await check_settled(harness.database, harness.engine)


@proves("recover.max-attempts")
async def test_a_step_that_only_closes_what_a_lost_worker_began_does_not_clear_a_run(harness: Harness):
    """Each tool call ends the worker. The next attempt commits the step with an interrupted call, and calls another."""
    lost = harness.settings.runs.max_attempts
    run = await harness.submit(plan(*([f"wait:d{at}"] for at in range(lost))))
    for at in range(lost):
        worker = harness.worker()
        slot = await harness.start_next(worker)
        await harness.engine.reached(f"d{at}")
        await worker.crash()
        await slot
        await harness.recover()
        assert (await harness.run(run.run_id))["losses"] == at + 1
    await harness.settle(harness.worker())
    row = await harness.run(run.run_id)
    assert (row["status"], row["error_kind"]) == ("failed", "worker_lost")
    assert await harness.database.fetchval("SELECT steps FROM turns WHERE run_id = :id", id=run.run_id) == lost
    await check_settled(harness.database, harness.engine)


async def _stale_claim(harness: Harness) -> tuple[Claim, str]:
    """Return a claim whose run was taken over by another, and its thread."""
    run = await harness.submit(plan(["x", "y"]))
    harness.bells.take()
    async with harness.database.connection() as connection:
        stale = await claim_next(connection, run.thread_id, worker_id="old", lease_ttl_s=30, max_attempts=5)
        assert isinstance(stale, Claim)
        await harness.recover()
        fresh = await claim_next(connection, run.thread_id, worker_id="new", lease_ttl_s=30, max_attempts=5)
    assert isinstance(fresh, Claim)
    assert (fresh.run_id, fresh.fence, fresh.attempt) == (stale.run_id, stale.fence + 1, 2)
    return stale, run.thread_id


@pytest.mark.parametrize("write", ["calls", "result", "step", "finish", "requeue"])
@proves("claim.old-fence")
async def test_no_write_with_an_old_fence_is_accepted(harness: Harness, write: str):
    stale, thread_id = await _stale_claim(harness)
    step = _step()
    before = await thread_state(harness.database, thread_id)
    async with harness.database.connection() as connection:
        attempts = {
            "calls": lambda: journal.commit_calls(connection, stale.run_id, stale.fence, step, seq=1, event_id="1-1"),
            "result": lambda: journal.commit_result(connection, stale.run_id, stale.fence, step.tool_calls[0]),
            "step": lambda: journal.commit_step(
                connection,
                stale.run_id,
                stale.fence,
                step,
                seq=1,
                event_id="1-1",
                used=TokenUsage(),
                facts=_FACTS,
                absorb=True,
                clears=False,
            ),
            "finish": lambda: finish_run(connection, stale, Finish("succeeded", "end_turn", "mine"), seq=1),
            "requeue": lambda: requeue_run(connection, stale),
        }
        with pytest.raises(RunLost, match=stale.run_id):
            await attempts[write]()
    assert await thread_state(harness.database, thread_id) == before


@proves("recover.zombie", "claim.old-fence")
async def test_a_worker_that_slept_past_its_lease_writes_nothing_when_it_wakes(harness: Harness):
    zombie, other = harness.worker(), harness.worker()
    run, slot = await harness.begin(zombie, plan(["wait:a"]), "a")
    zombie.faults.hold("commit_step")
    harness.engine.open("a")
    await zombie.faults.reached()
    await harness.recover()
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"
    before = await thread_state(harness.database, run.thread_id)
    zombie.faults.step()
    await slot
    assert await thread_state(harness.database, run.thread_id) == before
    await check_settled(harness.database, harness.engine)


async def test_a_worker_that_claims_its_own_lost_run_stops_the_old_attempt_and_renews_the_new_one(harness: Harness):
    worker = harness.worker()
    run, former = await harness.begin(worker, plan(doors={0: "a"}), "a")
    harness.engine.forget("a")
    await harness.recover()
    latter = await harness.start_next(worker)
    await former
    await harness.engine.reached("a")
    assert [held.claim.attempt for held in worker.keeper.held] == [2]
    harness.engine.open("a")
    await latter
    assert await harness.status(run.run_id) == "succeeded"
    await check_settled(harness.database, harness.engine)


async def _until_results(harness: Harness, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            if await harness.database.fetchval("SELECT count(*) FROM tool_calls WHERE result IS NOT NULL") == count:
                return
            await asyncio.sleep(0.005)


def _step() -> StepRecord:
    calls = tuple(ToolCall(f"toolu_{at}", "x", {}, 0, at, "completed", (text_block("r"),)) for at in (0, 1))
    uses = tuple({"type": "tool_use", "id": call.id, "name": "x", "input": {}} for call in calls)
    return StepRecord(0, (Message("assistant", uses),), calls)
