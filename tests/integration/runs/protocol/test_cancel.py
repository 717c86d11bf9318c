"""Cancel, withdraw and edit."""

from __future__ import annotations

import pytest

from nova_workers.base.errors import IllegalTransition, InvalidInput, NotFound
from nova_workers.contracts.content import text_block
from nova_workers.contracts.http.wire import BulkCancel
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness


@proves("cancel.queued", "cancel.twice")
async def test_a_queued_run_is_canceled_at_once_without_a_model_call(harness: Harness):
    worker = harness.worker()
    run = await harness.submit("hello")
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    row = await harness.run(run.run_id)
    assert (row["status"], row["stop_reason"], row["final_event_id"]) == ("canceled", "aborted", "0-1")
    before = dict(row)
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    await harness.settle(worker)
    assert dict(await harness.run(run.run_id)) == before
    assert not harness.engine.model_calls


@proves("cancel.running", "cancel.twice")
async def test_a_running_run_stops_at_once_and_keeps_its_text(harness: Harness):
    worker = harness.worker(control=True)
    await harness.wait_for_control_channel()
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    await slot
    row = await harness.run(run.run_id)
    assert (row["status"], row["stop_reason"], row["result_text"]) == ("canceled", "aborted", "Step 0. ")
    turn = await harness.database.fetchrow("SELECT * FROM turns WHERE run_id = :run_id", run_id=run.run_id)
    assert turn is not None
    assert turn["status"] == "aborted"


async def test_a_run_that_is_canceled_in_mid_tool_keeps_a_valid_transcript(harness: Harness):
    worker = harness.worker(control=True)
    await harness.wait_for_control_channel()
    run, slot = await harness.begin(worker, plan(["quick", "wait:a"]), "a")
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    await slot
    _, response, results = await harness.transcript(run.run_id)
    asked = [block["id"] for block in response["content"] if block["type"] == "tool_use"]
    answered = {block["tool_use_id"]: block for block in results["content"]}
    assert list(answered) == asked
    assert "is_error" not in answered[asked[0]]
    assert answered[asked[1]]["is_error"]
    statuses = await harness.database.fetch("SELECT status FROM tool_calls ORDER BY sequence")
    assert [row["status"] for row in statuses] == ["completed", "interrupted"]


@proves("cancel.over")
async def test_an_ended_run_cannot_be_canceled(harness: Harness):
    worker = harness.worker()
    run = await harness.submit("hello")
    await harness.settle(worker)
    with pytest.raises(IllegalTransition, match="succeeded") as refusal:
        await harness.canceller.cancel(harness.tenant_id, run.run_id)
    assert refusal.value.fields["status"] == "succeeded"


@proves("input.unknown")
async def test_unknown_and_foreign_runs_cannot_be_canceled_edited_or_withdrawn(harness: Harness):
    run = await harness.submit("hello")
    for tenant_id, run_id in ((harness.tenant_id, "run_none"), ("ten_2", run.run_id)):
        for attempt in (
            harness.canceller.cancel(tenant_id, run_id),
            harness.canceller.withdraw(tenant_id, run_id),
            harness.canceller.edit(tenant_id, run_id, (text_block("x"),)),
        ):
            with pytest.raises(NotFound):
                await attempt
    assert await harness.status(run.run_id) == "queued"


async def test_a_cancel_of_a_begun_run_without_a_worker_is_applied_by_the_next_claim(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, _ = await harness.begin(worker, plan(["done"], ["wait:a"]), "a")
    await worker.crash()
    await harness.recover()
    harness.bells.take()
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    assert await harness.status(run.run_id) == "queued"
    asked = len(harness.engine.model_calls)
    await harness.settle(other)
    row = await harness.run(run.run_id)
    assert (row["status"], row["result_text"]) == ("canceled", "Step 0. \n\nStep 1. ")
    assert len(harness.engine.model_calls) == asked
    kinds = [message["kind"] for message in await harness.transcript(run.run_id)]
    assert kinds == ["query", "response", "tool_results", "response", "tool_results"]


async def test_a_cancel_that_comes_with_the_end_changes_nothing(harness: Harness):
    worker = harness.worker(control=True)
    await harness.wait_for_control_channel()
    run, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    worker.faults.hold("finish")
    harness.engine.open("a")
    await worker.faults.reached()
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    worker.faults.step()
    await slot
    assert await harness.status(run.run_id) == "succeeded"


@proves("cancel.withdraw")
async def test_a_queued_run_can_be_edited_and_withdrawn_until_it_is_begun(harness: Harness):
    worker = harness.worker()
    first, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    kept = await harness.submit("old words", first.thread_id)
    gone = await harness.submit("never mind", first.thread_id)
    await harness.canceller.edit(harness.tenant_id, kept.run_id, (text_block("new words"),))
    await harness.canceller.withdraw(harness.tenant_id, gone.run_id)
    with pytest.raises(IllegalTransition, match="canceled"):
        await harness.canceller.withdraw(harness.tenant_id, gone.run_id)
    for refused in (
        harness.canceller.edit(harness.tenant_id, first.run_id, (text_block("x"),)),
        harness.canceller.withdraw(harness.tenant_id, first.run_id),
    ):
        with pytest.raises(IllegalTransition, match="running"):
            await refused
    harness.engine.open("a")
    await slot
    await harness.settle(worker)
    assert harness.engine.model_calls[-1].texts[-1] == "new words"
    assert await harness.status(gone.run_id) == "canceled"


@proves("cancel.bulk")
async def test_a_bulk_cancel_takes_what_matches_and_says_how_many(harness: Harness):
    worker = harness.worker(control=True)
    await harness.wait_for_control_channel()
    active, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    mine = [await harness.submit("x", active.thread_id) for _ in range(3)]
    other = await harness.submit("y")
    done = await harness.canceller.cancel_many(harness.tenant_id, BulkCancel(thread_id=active.thread_id))
    assert (done.canceled, done.requested) == (3, 1)
    await slot
    assert [await harness.status(run.run_id) for run in (active, *mine, other)] == ["canceled"] * 4 + ["queued"]
    by_id = await harness.canceller.cancel_many("ten_2", BulkCancel(run_ids=[other.run_id]))
    assert (by_id.canceled, by_id.requested) == (0, 0)
    assert await harness.status(other.run_id) == "queued"


async def test_a_bulk_cancel_without_a_filter_is_refused(harness: Harness):
    with pytest.raises(InvalidInput, match="every run"):
        await harness.canceller.cancel_many(harness.tenant_id, BulkCancel())
