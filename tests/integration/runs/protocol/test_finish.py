"""The end of a run is one transaction: everything of it is there, or nothing."""

from __future__ import annotations

from tests.requirements import proves
from tests.support.executor import Floor
from tests.support.invariants import check_settled, thread_state
from tests.support.puppet import plan


@proves("finish.whole")
async def test_the_end_writes_turn_run_usage_head_history_and_effects_together(floor: Floor):
    worker = floor.worker()
    run, slot = await floor.begin(worker, plan(["a"], doors={1: "b"}), "b")
    worker.tap.hold("finish")
    floor.puppet.open("b")
    await worker.tap.reached()
    before = await thread_state(floor.database, run.thread_id)
    assert await floor.status(run.run_id) == "running"
    assert await floor.database.fetchval("SELECT count(*) FROM usage") == 0
    worker.tap.step("crash_before")
    await slot
    assert await thread_state(floor.database, run.thread_id) == before
    await worker.crash()
    await floor.recover()
    await floor.settle(floor.worker())
    row = await floor.run(run.run_id)
    turn = await floor.database.fetchrow("SELECT * FROM turns WHERE run_id = $1", run.run_id)
    assert turn is not None
    thread = await floor.database.fetchrow("SELECT * FROM threads WHERE id = $1", run.thread_id)
    assert thread is not None
    assert (row["status"], row["stop_reason"], turn["status"]) == ("succeeded", "end_turn", "succeeded")
    assert (thread["head_turn_id"], thread["active_run_id"], thread["turn_count"]) == (turn["id"], None, 1)
    assert (turn["steps"], turn["tool_call_count"], turn["engine"]) == (2, 1, "puppet")
    effects = await floor.database.fetch("SELECT kind, position FROM effects WHERE run_id = $1", run.run_id)
    assert [tuple(effect) for effect in effects] == [("embeddings", 1)]
    await check_settled(floor.database, floor.puppet)


async def test_a_canceled_or_failed_run_leaves_no_effects(floor: Floor):
    worker = floor.worker()
    await floor.submit("hello", agent_id=None, thread_id=await floor.thread("scripted"))
    failed = await floor.submit('{"script": [{"error": {"message": "No."}}]}', await floor.thread("scripted"))
    await floor.settle(worker)
    row = await floor.run(failed.run_id)
    assert (row["status"], row["error_kind"], row["error_message"]) == ("failed", "model_error", "No.")
    kinds = await floor.database.fetch("SELECT run_id FROM effects WHERE run_id = $1", failed.run_id)
    assert kinds == []


async def test_an_engine_that_raises_fails_its_run_and_keeps_what_was_committed(floor: Floor):
    worker = floor.worker()
    script = '{"script": [{"say": "First.", "tool": {"name": "a"}}, {"crash": "raise"}]}'
    run = await floor.submit(script, await floor.thread("scripted"))
    await floor.settle(worker)
    row = await floor.run(run.run_id)
    assert (row["status"], row["error_kind"], row["result_text"]) == ("failed", "unknown", "First.")
    assert "RuntimeError" in row["error_message"]
    kinds = [message["kind"] for message in await floor.transcript(run.run_id)]
    assert kinds == ["query", "response", "tool_results"]


async def test_an_agent_of_an_unknown_engine_fails_its_run_and_says_which_there_are(floor: Floor):
    worker = floor.worker()
    await floor.add_agent("odd", {"name": "Odd", "engine": "abacus"})
    run = await floor.submit("hello", agent_id="odd")
    await floor.settle(worker)
    row = await floor.run(run.run_id)
    assert row["status"] == "failed"
    assert "'abacus'" in row["error_message"]
    assert "'puppet'" in row["error_message"]
