"""The end of a run is one transaction: all of its rows are written, or none."""

from __future__ import annotations

from tests.requirements import proves
from tests.support.harness.invariants import check_settled, thread_state
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness


@proves("finish.whole")
async def test_the_end_writes_turn_run_usage_head_history_and_effects_together(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(["a"], doors={1: "b"}), "b")
    worker.faults.hold("finish")
    harness.engine.open("b")
    await worker.faults.reached()
    before = await thread_state(harness.database, run.thread_id)
    assert await harness.status(run.run_id) == "running"
    assert await harness.database.fetchval("SELECT count(*) FROM usage") == 0
    worker.faults.step("crash_before")
    await slot
    assert await thread_state(harness.database, run.thread_id) == before
    await worker.crash()
    await harness.recover()
    await harness.settle(harness.worker())
    row = await harness.run(run.run_id)
    turn = await harness.database.fetchrow("SELECT * FROM turns WHERE run_id = :run_id", run_id=run.run_id)
    assert turn is not None
    thread = await harness.database.fetchrow("SELECT * FROM threads WHERE id = :thread_id", thread_id=run.thread_id)
    assert thread is not None
    assert (row["status"], row["stop_reason"], turn["status"]) == ("succeeded", "end_turn", "succeeded")
    assert (thread["head_turn_id"], thread["active_run_id"], thread["turn_count"]) == (turn["id"], None, 1)
    assert (turn["steps"], turn["tool_call_count"], turn["engine"]) == (2, 1, "planned")
    effects = await harness.database.fetch(
        "SELECT kind, position FROM effects WHERE run_id = :run_id", run_id=run.run_id
    )
    assert [tuple(effect) for effect in effects] == [("embeddings", 1)]
    await check_settled(harness.database, harness.engine)


async def test_a_canceled_or_failed_run_leaves_no_effects(harness: Harness):
    worker = harness.worker()
    await harness.submit("hello", agent_id=None, thread_id=await harness.thread("scripted"))
    failed = await harness.submit('{"script": [{"error": {"message": "No."}}]}', await harness.thread("scripted"))
    await harness.settle(worker)
    row = await harness.run(failed.run_id)
    assert (row["status"], row["error_kind"], row["error_message"]) == ("failed", "model_error", "No.")
    kinds = await harness.database.fetch("SELECT run_id FROM effects WHERE run_id = :run_id", run_id=failed.run_id)
    assert kinds == []


async def test_an_engine_that_raises_fails_its_run_and_keeps_what_was_committed(harness: Harness):
    worker = harness.worker()
    script = '{"script": [{"say": "First.", "tool": {"name": "a"}}, {"crash": "raise"}]}'
    run = await harness.submit(script, await harness.thread("scripted"))
    await harness.settle(worker)
    row = await harness.run(run.run_id)
    assert (row["status"], row["error_kind"], row["result_text"]) == ("failed", "unknown", "First.")
    assert "RuntimeError" in row["error_message"]
    kinds = [message["kind"] for message in await harness.transcript(run.run_id)]
    assert kinds == ["query", "response", "tool_results"]


async def test_a_run_with_an_unknown_engine_fails_with_the_names_of_engines(harness: Harness):
    worker = harness.worker()
    await harness.add_agent("odd", {"name": "Odd", "engine": "abacus"})
    run = await harness.submit("hello", agent_id="odd")
    await harness.settle(worker)
    row = await harness.run(run.run_id)
    assert row["status"] == "failed"
    assert "'abacus'" in row["error_message"]
    assert "'planned'" in row["error_message"]
