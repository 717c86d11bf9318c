"""An occurrence comes, and a run begins: when, in which thread, with which words; and what ends it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from nova_workers.errors import Gone, LimitExceeded, NotFound
from nova_workers.triggers.occurrences import jitter_of
from tests.integration.triggers.rig import Rig
from tests.requirements import proves


@proves("triggers.fires")
async def test_a_slot_that_came_begins_a_run_in_a_new_thread(rig: Rig) -> None:
    trigger_id = await rig.make(schedule="60", prompt="Look for orders.")
    assert (await rig.tick()).fired == 0
    occurrence = (await rig.get(trigger_id)).next_slot_at
    assert occurrence is not None
    await rig.pass_time(61)
    assert (await rig.tick()).fired == 1
    (firing,) = await rig.firings(trigger_id)
    (run,) = await rig.runs(trigger_id)
    assert (firing["outcome"], firing["run_id"], firing["manual"]) == ("fired", run["id"], False)
    assert firing["scheduled_for"] == occurrence - timedelta(seconds=61)
    assert run["content"] == [{"type": "text", "text": "Look for orders."}]
    assert (run["queue"], run["source"], run["seq"], run["trigger_id"]) == ("background", "trigger", 1, trigger_id)
    scheduled_for = datetime.fromisoformat(run["meta"].pop("scheduled_for"))
    assert run["meta"] == {"trigger_id": trigger_id}
    assert scheduled_for == firing["scheduled_for"]
    (bell,) = rig.harness.bells.waiting
    assert bell.run_id == run["id"]
    await rig.harness.settle(rig.harness.worker())
    assert await rig.harness.status(run["id"]) == "succeeded"
    # The next occurrence is one period on, however late this one was.
    after = await rig.get(trigger_id)
    assert after.next_slot_at == after.next_fire_at == firing["scheduled_for"] + timedelta(seconds=60)
    assert (await rig.tick()).fired == 0


async def test_a_fixed_thread_goes_on_in_the_order_of_its_line(rig: Rig) -> None:
    thread_id = await rig.harness.thread()
    other = await rig.harness.submit("before", thread_id)
    made = [await rig.make(thread_id=thread_id, prompt=f"words {at}") for at in range(3)]
    await rig.pass_time(61)
    assert (await rig.tick()).fired == 3
    rows = await rig.database.fetch(
        "SELECT id, seq, trigger_id FROM runs WHERE thread_id = :thread_id ORDER BY seq", thread_id=thread_id
    )
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["id"] == other.run_id
    assert {row["trigger_id"] for row in rows[1:]} == set(made)
    later = await rig.harness.submit("after", thread_id)
    assert later.seq == 5
    await rig.harness.settle(rig.harness.worker())
    assert len(rig.harness.engine.model_calls) == 5


async def test_one_time_fires_once_and_is_switched_off(rig: Rig) -> None:
    at = datetime.now(UTC) + timedelta(seconds=3600)
    trigger_id = await rig.make("at", at.isoformat())
    await rig.pass_time(3601)
    assert (await rig.tick()).fired == 1
    assert (await rig.tick()).fired == 0
    done = await rig.get(trigger_id)
    assert (done.enabled, done.next_slot_at, done.next_fire_at) == (False, None, None)


async def test_the_last_slot_before_the_end_is_the_last(rig: Rig) -> None:
    ends = datetime.now(UTC) + timedelta(seconds=100)
    trigger_id = await rig.make(schedule="60", ends_at=ends.isoformat())
    await rig.pass_time(61)
    assert (await rig.tick()).fired == 1
    assert (await rig.get(trigger_id)).enabled is False
    await rig.pass_time(600)
    assert (await rig.tick()).fired == 0


async def test_jitter_is_the_same_for_everybody_and_moves_no_occurrence(rig: Rig) -> None:
    trigger_id = await rig.make(schedule="600", jitter_s=500)
    view = await rig.get(trigger_id)
    assert view.next_slot_at is not None
    assert view.next_fire_at is not None
    assert view.next_fire_at == view.next_slot_at + jitter_of(trigger_id, view.next_slot_at, 500)
    assert timedelta() <= view.next_fire_at - view.next_slot_at < timedelta(seconds=500)
    await rig.database.execute("UPDATE triggers SET next_fire_at = now() + interval '5 seconds'")
    assert (await rig.tick()).fired == 0
    await rig.pass_time(1200 - 1)
    await rig.tick()
    after = await rig.get(trigger_id)
    assert after.next_slot_at is not None
    assert (after.next_slot_at - after.created_at) % timedelta(seconds=600) == timedelta()


async def test_what_is_off_paused_or_deleted_does_not_fire(rig: Rig) -> None:
    off, deleted, on = [await rig.make() for _ in range(3)]
    view = await rig.patch(off, enabled=False)
    assert view.next_fire_at is None
    await rig.database.execute(
        "UPDATE triggers SET deleted_at = now(), next_fire_at = NULL WHERE id = :trigger_id", trigger_id=deleted
    )
    await rig.pass_time(61)
    assert (await rig.tick()).fired == 1
    assert [len(await rig.runs(each)) for each in (off, deleted, on)] == [0, 0, 1]
    # Switched on again it begins anew: what it slept through does not count.
    again = await rig.patch(off, enabled=True)
    assert again.next_slot_at is not None
    assert again.next_slot_at > datetime.now(UTC)


async def test_a_change_of_words_keeps_the_slot_and_a_change_of_time_moves_it(rig: Rig) -> None:
    trigger_id = await rig.make(schedule="3600")
    before = (await rig.get(trigger_id)).next_slot_at
    assert before is not None
    assert (await rig.patch(trigger_id, prompt="other words")).next_slot_at == before
    await rig.pass_time(3601)
    assert (await rig.patch(trigger_id, title="due", enabled=True)).next_slot_at == before - timedelta(seconds=3601)
    assert (await rig.tick()).fired == 1
    moved = (await rig.patch(trigger_id, schedule="60")).next_slot_at
    assert moved is not None
    assert datetime.now(UTC) < moved <= datetime.now(UTC) + timedelta(seconds=60)


@proves("triggers.gone")
async def test_a_deleted_agent_or_thread_pauses_the_trigger_with_the_reason(rig: Rig) -> None:
    await rig.harness.add_agent("other", {"name": "other", "engine": "planned"})
    thread_id = await rig.harness.thread()
    of_agent = await rig.make(agent_id="other")
    of_thread = await rig.make(thread_id=thread_id)
    await rig.database.execute("UPDATE agents SET deleted_at = now() WHERE id = 'other'")
    await rig.database.execute("UPDATE threads SET deleted_at = now() WHERE id = :thread_id", thread_id=thread_id)
    await rig.pass_time(61)
    ticked = await rig.tick()
    assert (ticked.fired, ticked.skipped) == (0, 2)
    assert await rig.outcomes(of_agent) == ["agent_deleted"]
    assert await rig.outcomes(of_thread) == ["thread_deleted"]
    for trigger_id, words in ((of_agent, "Agent 'other' was deleted"), (of_thread, f"Thread {thread_id!r}")):
        view = await rig.get(trigger_id)
        assert words in (view.paused_reason or "")
        assert (view.enabled, view.next_fire_at) == (True, None)
        (told,) = await rig.told(trigger_id)
        assert words in told
    assert not await rig.database.fetchval("SELECT count(*) FROM runs")
    await rig.patch(of_thread, thread_id=None)
    resumed = await rig.resume(of_thread)
    assert resumed.paused_reason is None
    assert resumed.next_slot_at is not None
    await rig.pass_time(61, of_thread)
    assert (await rig.tick()).fired == 1


@pytest.mark.parametrize("scope", ["fleet", "tenant", "agent"])
@proves("triggers.held")
async def test_what_is_due_while_its_agent_is_paused_waits(rig: Rig, scope: str) -> None:
    trigger_id = await rig.make()
    await rig.database.execute(
        "INSERT INTO switches (scope, tenant_id, target) VALUES (:scope, :tenant_id, :target)",
        scope=scope,
        tenant_id="" if scope == "fleet" else rig.harness.tenant_id,
        target="planned" if scope == "agent" else "",
    )
    await rig.pass_time(61)
    occurrence = (await rig.get(trigger_id)).next_slot_at
    for _ in range(2):
        assert (await rig.tick()).fired == 0
    assert await rig.outcomes(trigger_id) == []
    held = await rig.get(trigger_id)
    assert held.next_slot_at == occurrence
    assert held.next_fire_at is not None
    assert held.next_fire_at > datetime.now(UTC)
    await rig.database.execute("DELETE FROM switches")
    await rig.database.execute("UPDATE triggers SET next_fire_at = now()")
    assert (await rig.tick()).fired == 1


@proves("triggers.by-hand")
async def test_a_manual_firing_starts_a_run_now_and_keeps_the_schedule(rig: Rig) -> None:
    trigger_id = await rig.make(schedule="3600", gate={"kind": "open_tasks"}, enabled=False)
    first = await rig.firer.fire(rig.harness.tenant_id, trigger_id)
    second = await rig.firer.fire(rig.harness.tenant_id, trigger_id)
    assert (first.outcome, first.manual, first.run_status) == ("fired", True, "queued")
    assert first.run_id != second.run_id
    assert [bell.run_id for bell in rig.harness.bells.waiting] == [first.run_id, second.run_id]
    assert (await rig.get(trigger_id)).next_fire_at is None
    with pytest.raises(NotFound):
        await rig.firer.fire("ten_other", trigger_id)
    await rig.patch(trigger_id, max_runs_per_day=2)
    with pytest.raises(LimitExceeded, match="2 runs of the day"):
        await rig.firer.fire(rig.harness.tenant_id, trigger_id)
    await rig.database.execute("UPDATE agents SET deleted_at = now()")
    with pytest.raises(Gone):
        await rig.firer.fire(rig.harness.tenant_id, trigger_id)


async def test_one_that_cannot_be_read_is_paused_and_holds_up_no_other(rig: Rig) -> None:
    broken, good = [await rig.make("cron", "0 0 1 1 *") for _ in range(2)]
    await rig.database.execute(
        "UPDATE triggers SET timezone = 'Mars/Olympus' WHERE id = :trigger_id", trigger_id=broken
    )
    await rig.database.execute("UPDATE triggers SET next_slot_at = now(), next_fire_at = now()")
    ticked = await rig.tick()
    assert (ticked.fired, ticked.skipped) == (1, 1)
    assert await rig.outcomes(broken) == ["schedule"]
    assert "Mars/Olympus" in ((await rig.get(broken)).paused_reason or "")
    assert len(await rig.runs(good)) == 1


async def test_one_that_breaks_its_batch_is_put_off_and_the_others_fire(rig: Rig) -> None:
    good = [await rig.make() for _ in range(3)]
    broken = await rig.make()
    await rig.pass_time(61)
    # At the end of the calendar there is no later.
    await rig.database.execute(
        "UPDATE triggers SET jitter_s = 2000000000, next_slot_at = '9999-12-31' WHERE id = :trigger_id",
        trigger_id=broken,
    )
    await rig.database.execute("UPDATE triggers SET next_fire_at = now() - interval '1 second'")
    assert (await rig.tick()).fired == 3
    assert [len(await rig.runs(each)) for each in good] == [1, 1, 1]
    put_off = await rig.get(broken)
    assert put_off.next_fire_at is not None
    assert put_off.next_fire_at > datetime.now(UTC) + timedelta(minutes=4)
