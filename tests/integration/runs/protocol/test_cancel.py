"""Runs that are not wanted any more."""

from __future__ import annotations

import pytest

from nova_workers.contracts.content import text_block
from nova_workers.contracts.http.wire import BulkCancel
from nova_workers.errors import IllegalTransition, InvalidInput, NotFound
from tests.requirements import proves
from tests.support.executor import Floor
from tests.support.puppet import plan


@proves("cancel.queued", "cancel.twice")
async def test_a_queued_run_is_canceled_at_once_and_never_asked(floor: Floor):
    worker = floor.worker()
    run = await floor.submit("hello")
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    row = await floor.run(run.run_id)
    assert (row["status"], row["stop_reason"], row["final_event_id"]) == ("canceled", "aborted", "0-1")
    before = dict(row)
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    await floor.settle(worker)
    assert dict(await floor.run(run.run_id)) == before
    assert not floor.puppet.asked


@proves("cancel.running", "cancel.twice")
async def test_a_running_run_stops_at_once_and_keeps_its_text(floor: Floor):
    worker = floor.worker(control=True)
    await floor.hears_nudges()
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    await slot
    row = await floor.run(run.run_id)
    assert (row["status"], row["stop_reason"], row["result_text"]) == ("canceled", "aborted", "Step 0. ")
    turn = await floor.database.fetchrow("SELECT * FROM turns WHERE run_id = $1", run.run_id)
    assert turn is not None
    assert turn["status"] == "aborted"


async def test_a_run_that_is_canceled_in_mid_tool_keeps_a_transcript_that_a_model_takes(floor: Floor):
    worker = floor.worker(control=True)
    await floor.hears_nudges()
    run, slot = await floor.begin(worker, plan(["quick", "wait:a"]), "a")
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    await slot
    _, response, results = await floor.transcript(run.run_id)
    asked = [block["id"] for block in response["content"] if block["type"] == "tool_use"]
    answered = {block["tool_use_id"]: block for block in results["content"]}
    assert list(answered) == asked
    assert "is_error" not in answered[asked[0]]
    assert answered[asked[1]]["is_error"]
    statuses = await floor.database.fetch("SELECT status FROM tool_calls ORDER BY sequence")
    assert [row["status"] for row in statuses] == ["completed", "interrupted"]


@proves("cancel.over")
async def test_a_run_that_is_over_cannot_be_canceled(floor: Floor):
    worker = floor.worker()
    run = await floor.submit("hello")
    await floor.settle(worker)
    with pytest.raises(IllegalTransition, match="succeeded") as refusal:
        await floor.canceller.cancel(floor.tenant_id, run.run_id)
    assert refusal.value.fields["status"] == "succeeded"


@proves("input.unknown")
async def test_unknown_and_foreign_runs_cannot_be_canceled_edited_or_withdrawn(floor: Floor):
    run = await floor.submit("hello")
    for tenant_id, run_id in ((floor.tenant_id, "run_none"), ("ten_2", run.run_id)):
        for attempt in (
            floor.canceller.cancel(tenant_id, run_id),
            floor.canceller.withdraw(tenant_id, run_id),
            floor.canceller.edit(tenant_id, run_id, (text_block("x"),)),
        ):
            with pytest.raises(NotFound):
                await attempt
    assert await floor.status(run.run_id) == "queued"


async def test_a_cancel_while_nobody_works_on_a_begun_run_is_carried_out_by_the_next_claim(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run, _ = await floor.begin(worker, plan(["done"], ["wait:a"]), "a")
    await worker.crash()
    await floor.recover()
    floor.bells.take()
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    assert await floor.status(run.run_id) == "queued"
    asked = len(floor.puppet.asked)
    await floor.settle(other)
    row = await floor.run(run.run_id)
    assert (row["status"], row["result_text"]) == ("canceled", "Step 0. \n\nStep 1. ")
    assert len(floor.puppet.asked) == asked
    kinds = [message["kind"] for message in await floor.transcript(run.run_id)]
    assert kinds == ["query", "response", "tool_results", "response", "tool_results"]


async def test_a_cancel_that_comes_with_the_end_changes_nothing(floor: Floor):
    worker = floor.worker(control=True)
    await floor.hears_nudges()
    run, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    worker.tap.hold("finish")
    floor.puppet.open("a")
    await worker.tap.reached()
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    worker.tap.step()
    await slot
    assert await floor.status(run.run_id) == "succeeded"


@proves("cancel.withdraw")
async def test_a_queued_run_can_be_edited_and_withdrawn_until_it_is_begun(floor: Floor):
    worker = floor.worker()
    first, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    kept = await floor.submit("old words", first.thread_id)
    gone = await floor.submit("never mind", first.thread_id)
    await floor.canceller.edit(floor.tenant_id, kept.run_id, (text_block("new words"),))
    await floor.canceller.withdraw(floor.tenant_id, gone.run_id)
    with pytest.raises(IllegalTransition, match="canceled"):
        await floor.canceller.withdraw(floor.tenant_id, gone.run_id)
    for refused in (
        floor.canceller.edit(floor.tenant_id, first.run_id, (text_block("x"),)),
        floor.canceller.withdraw(floor.tenant_id, first.run_id),
    ):
        with pytest.raises(IllegalTransition, match="running"):
            await refused
    floor.puppet.open("a")
    await slot
    await floor.settle(worker)
    assert floor.puppet.asked[-1].texts[-1] == "new words"
    assert await floor.status(gone.run_id) == "canceled"


@proves("cancel.bulk")
async def test_a_bulk_cancel_takes_what_matches_and_says_how_many(floor: Floor):
    worker = floor.worker(control=True)
    await floor.hears_nudges()
    active, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    mine = [await floor.submit("x", active.thread_id) for _ in range(3)]
    other = await floor.submit("y")
    done = await floor.canceller.cancel_many(floor.tenant_id, BulkCancel(thread_id=active.thread_id))
    assert (done.canceled, done.requested) == (3, 1)
    await slot
    assert [await floor.status(run.run_id) for run in (active, *mine, other)] == ["canceled"] * 4 + ["queued"]
    by_id = await floor.canceller.cancel_many("ten_2", BulkCancel(run_ids=[other.run_id]))
    assert (by_id.canceled, by_id.requested) == (0, 0)
    assert await floor.status(other.run_id) == "queued"


async def test_a_bulk_cancel_without_a_filter_is_refused(floor: Floor):
    with pytest.raises(InvalidInput, match="every run"):
        await floor.canceller.cancel_many(floor.tenant_id, BulkCancel())
