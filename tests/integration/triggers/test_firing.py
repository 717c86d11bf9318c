"""A due occurrence starts a run: when, in which thread, with which prompt; and what ends a trigger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from nova_workers.base.errors import Gone, LimitExceeded, NotFound
from nova_workers.domain.triggers.rules.occurrences import jitter_of
from tests.integration.triggers.trigger_harness import TriggerHarness
from tests.requirements import proves
from tests.support.harness.renames import begin_rename, move_all
from tests.support.harness.workers import AGENT


@proves("triggers.fires")
async def test_a_due_occurrence_starts_a_run_in_a_new_thread(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(schedule="60", prompt="Look for orders.")
    assert (await triggers.tick()).fired == 0
    occurrence = (await triggers.get(trigger_id)).next_slot_at
    assert occurrence is not None
    await triggers.pass_time(61)
    assert (await triggers.tick()).fired == 1
    (firing,) = await triggers.firings(trigger_id)
    (run,) = await triggers.runs(trigger_id)
    assert (firing["outcome"], firing["run_id"], firing["manual"]) == ("fired", run["id"], False)
    assert firing["scheduled_for"] == occurrence - timedelta(seconds=61)
    assert run["content"] == [{"type": "text", "text": "Look for orders."}]
    assert (run["queue"], run["source"], run["seq"], run["trigger_id"]) == ("background", "trigger", 1, trigger_id)
    scheduled_for = datetime.fromisoformat(run["meta"].pop("scheduled_for"))
    assert run["meta"] == {"trigger_id": trigger_id}
    assert scheduled_for == firing["scheduled_for"]
    (bell,) = triggers.harness.bells.waiting
    assert bell.run_id == run["id"]
    await triggers.harness.settle(triggers.harness.worker())
    assert await triggers.harness.status(run["id"]) == "succeeded"
    # The next occurrence is one period later, however late this one was.
    after = await triggers.get(trigger_id)
    assert after.next_slot_at == after.next_fire_at == firing["scheduled_for"] + timedelta(seconds=60)
    assert (await triggers.tick()).fired == 0


async def test_a_fixed_thread_continues_in_the_order_of_its_queue(triggers: TriggerHarness) -> None:
    thread_id = await triggers.harness.thread()
    other = await triggers.harness.submit("before", thread_id)
    made = [await triggers.make(thread_id=thread_id, prompt=f"words {at}") for at in range(3)]
    await triggers.pass_time(61)
    assert (await triggers.tick()).fired == 3
    rows = await triggers.database.fetch(
        "SELECT id, seq, trigger_id FROM runs WHERE thread_id = :thread_id ORDER BY seq", thread_id=thread_id
    )
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["id"] == other.run_id
    assert {row["trigger_id"] for row in rows[1:]} == set(made)
    later = await triggers.harness.submit("after", thread_id)
    assert later.seq == 5
    await triggers.harness.settle(triggers.harness.worker())
    assert len(triggers.harness.engine.model_calls) == 5


async def test_a_single_time_fires_once_and_is_disabled(triggers: TriggerHarness) -> None:
    at = datetime.now(UTC) + timedelta(seconds=3600)
    trigger_id = await triggers.make("at", at.isoformat())
    await triggers.pass_time(3601)
    assert (await triggers.tick()).fired == 1
    assert (await triggers.tick()).fired == 0
    done = await triggers.get(trigger_id)
    assert (done.enabled, done.next_slot_at, done.next_fire_at) == (False, None, None)


async def test_the_last_occurrence_before_the_end_is_the_last(triggers: TriggerHarness) -> None:
    ends = datetime.now(UTC) + timedelta(seconds=100)
    trigger_id = await triggers.make(schedule="60", ends_at=ends.isoformat())
    await triggers.pass_time(61)
    assert (await triggers.tick()).fired == 1
    assert (await triggers.get(trigger_id)).enabled is False
    await triggers.pass_time(600)
    assert (await triggers.tick()).fired == 0


async def test_jitter_is_deterministic_and_moves_no_occurrence(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(schedule="600", jitter_s=500)
    view = await triggers.get(trigger_id)
    assert view.next_slot_at is not None
    assert view.next_fire_at is not None
    assert view.next_fire_at == view.next_slot_at + jitter_of(trigger_id, view.next_slot_at, 500)
    assert timedelta() <= view.next_fire_at - view.next_slot_at < timedelta(seconds=500)
    await triggers.database.execute("UPDATE triggers SET next_fire_at = now() + interval '5 seconds'")
    assert (await triggers.tick()).fired == 0
    await triggers.pass_time(1200 - 1)
    await triggers.tick()
    after = await triggers.get(trigger_id)
    assert after.next_slot_at is not None
    assert (after.next_slot_at - after.created_at) % timedelta(seconds=600) == timedelta()


async def test_disabled_paused_and_deleted_triggers_do_not_fire(triggers: TriggerHarness) -> None:
    off, deleted, on = [await triggers.make() for _ in range(3)]
    view = await triggers.patch(off, enabled=False)
    assert view.next_fire_at is None
    await triggers.database.execute(
        "UPDATE triggers SET deleted_at = now(), next_fire_at = NULL WHERE id = :trigger_id", trigger_id=deleted
    )
    await triggers.pass_time(61)
    assert (await triggers.tick()).fired == 1
    assert [len(await triggers.runs(each)) for each in (off, deleted, on)] == [0, 0, 1]
    # Enabled again it starts anew: skipped occurrences do not count.
    again = await triggers.patch(off, enabled=True)
    assert again.next_slot_at is not None
    assert again.next_slot_at > datetime.now(UTC)


async def test_a_change_of_the_prompt_keeps_the_next_occurrence_and_one_of_the_schedule_moves_it(
    triggers: TriggerHarness,
) -> None:
    trigger_id = await triggers.make(schedule="3600")
    before = (await triggers.get(trigger_id)).next_slot_at
    assert before is not None
    assert (await triggers.patch(trigger_id, prompt="other words")).next_slot_at == before
    await triggers.pass_time(3601)
    assert (await triggers.patch(trigger_id, title="due", enabled=True)).next_slot_at == before - timedelta(
        seconds=3601
    )
    assert (await triggers.tick()).fired == 1
    moved = (await triggers.patch(trigger_id, schedule="60")).next_slot_at
    assert moved is not None
    assert datetime.now(UTC) < moved <= datetime.now(UTC) + timedelta(seconds=60)


@proves("triggers.gone")
async def test_a_deleted_agent_or_thread_pauses_the_trigger_with_the_reason(triggers: TriggerHarness) -> None:
    await triggers.harness.add_agent("other", {"name": "other", "engine": "planned"})
    thread_id = await triggers.harness.thread()
    of_agent = await triggers.make(agent_id="other")
    of_thread = await triggers.make(thread_id=thread_id)
    await triggers.database.execute("UPDATE agents SET deleted_at = now() WHERE id = 'other'")
    await triggers.database.execute("UPDATE threads SET deleted_at = now() WHERE id = :thread_id", thread_id=thread_id)
    await triggers.pass_time(61)
    ticked = await triggers.tick()
    assert (ticked.fired, ticked.skipped) == (0, 2)
    assert await triggers.outcomes(of_agent) == ["agent_deleted"]
    assert await triggers.outcomes(of_thread) == ["thread_deleted"]
    for trigger_id, words in ((of_agent, "Agent 'other' was deleted"), (of_thread, f"Thread {thread_id!r}")):
        view = await triggers.get(trigger_id)
        assert words in (view.paused_reason or "")
        assert (view.enabled, view.next_fire_at) == (True, None)
        (notifications,) = await triggers.notifications(trigger_id)
        assert words in notifications
    assert not await triggers.database.fetchval("SELECT count(*) FROM runs")
    await triggers.patch(of_thread, thread_id=None)
    resumed = await triggers.resume(of_thread)
    assert resumed.paused_reason is None
    assert resumed.next_slot_at is not None
    await triggers.pass_time(61, of_thread)
    assert (await triggers.tick()).fired == 1


@pytest.mark.parametrize("scope", ["fleet", "tenant", "agent"])
@proves("triggers.held")
async def test_occurrences_wait_while_their_agent_is_paused(triggers: TriggerHarness, scope: str) -> None:
    trigger_id = await triggers.make()
    await triggers.database.execute(
        "INSERT INTO switches (scope, tenant_id, target) VALUES (:scope, :tenant_id, :target)",
        scope=scope,
        tenant_id="" if scope == "fleet" else triggers.harness.tenant_id,
        target="planned" if scope == "agent" else "",
    )
    await triggers.pass_time(61)
    occurrence = (await triggers.get(trigger_id)).next_slot_at
    for _ in range(2):
        assert (await triggers.tick()).fired == 0
    assert await triggers.outcomes(trigger_id) == []
    held = await triggers.get(trigger_id)
    assert held.next_slot_at == occurrence
    assert held.next_fire_at is not None
    assert held.next_fire_at > datetime.now(UTC)
    await triggers.database.execute("DELETE FROM switches")
    await triggers.database.execute("UPDATE triggers SET next_fire_at = now()")
    assert (await triggers.tick()).fired == 1


@proves("triggers.by-hand")
async def test_a_manual_firing_starts_a_run_now_and_keeps_the_schedule(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(schedule="3600", gate={"kind": "open_tasks"}, enabled=False)
    first, _ = await triggers.firer.fire(triggers.harness.tenant_id, trigger_id)
    second, _ = await triggers.firer.fire(triggers.harness.tenant_id, trigger_id)
    assert (first.outcome, first.manual, first.run_status) == ("fired", True, "queued")
    assert first.run_id != second.run_id
    assert [bell.run_id for bell in triggers.harness.bells.waiting] == [first.run_id, second.run_id]
    assert (await triggers.get(trigger_id)).next_fire_at is None
    with pytest.raises(NotFound):
        await triggers.firer.fire("ten_other", trigger_id)
    await triggers.patch(trigger_id, max_runs_per_day=2)
    with pytest.raises(LimitExceeded, match="2 runs of the day"):
        await triggers.firer.fire(triggers.harness.tenant_id, trigger_id)
    await triggers.database.execute("UPDATE agents SET deleted_at = now()")
    with pytest.raises(Gone):
        await triggers.firer.fire(triggers.harness.tenant_id, trigger_id)


async def test_a_trigger_that_cannot_be_parsed_is_paused_and_blocks_no_other(triggers: TriggerHarness) -> None:
    broken, good = [await triggers.make("cron", "0 0 1 1 *") for _ in range(2)]
    await triggers.database.execute(
        "UPDATE triggers SET timezone = 'Mars/Olympus' WHERE id = :trigger_id", trigger_id=broken
    )
    await triggers.database.execute("UPDATE triggers SET next_slot_at = now(), next_fire_at = now()")
    ticked = await triggers.tick()
    assert (ticked.fired, ticked.skipped) == (1, 1)
    assert await triggers.outcomes(broken) == ["schedule"]
    assert "Mars/Olympus" in ((await triggers.get(broken)).paused_reason or "")
    assert len(await triggers.runs(good)) == 1


async def test_a_trigger_that_breaks_its_batch_is_postponed_and_the_others_fire(triggers: TriggerHarness) -> None:
    good = [await triggers.make() for _ in range(3)]
    broken = await triggers.make()
    await triggers.pass_time(61)
    # At the end of the calendar there is no later.
    await triggers.database.execute(
        "UPDATE triggers SET jitter_s = 2000000000, next_slot_at = '9999-12-31' WHERE id = :trigger_id",
        trigger_id=broken,
    )
    await triggers.database.execute("UPDATE triggers SET next_fire_at = now() - interval '1 second'")
    assert (await triggers.tick()).fired == 3
    assert [len(await triggers.runs(each)) for each in good] == [1, 1, 1]
    put_off = await triggers.get(broken)
    assert put_off.next_fire_at is not None
    assert put_off.next_fire_at > datetime.now(UTC) + timedelta(minutes=4)


@proves("agents.rename")
async def test_a_trigger_fires_while_its_agent_is_renamed_and_its_run_starts_after(triggers: TriggerHarness) -> None:
    harness = triggers.harness
    thread_id = await harness.thread()
    fixed, fresh = await triggers.make(thread_id=thread_id), await triggers.make()
    await begin_rename(harness, AGENT, "renamed")
    await triggers.pass_time(61)
    assert (await triggers.tick()).fired == 2
    worker = harness.worker()
    await harness.settle(worker)
    runs = [(await triggers.runs(trigger_id))[0] for trigger_id in (fixed, fresh)]
    # A thread that has not moved has one agent's id in all of its rows.
    assert [(run["agent_id"], run["status"]) for run in runs] == [(AGENT, "queued"), ("renamed", "queued")]
    await move_all(harness)
    await harness.settle(worker)
    assert [(row["agent_id"], row["status"]) for row in [await harness.run(run["id"]) for run in runs]] == [
        ("renamed", "succeeded")
    ] * 2
