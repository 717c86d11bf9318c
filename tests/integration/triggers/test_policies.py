"""How a trigger handles open runs, late occurrences, its limits, and runs that fail."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nova_workers.domain.runs.sql.fleet import Switch, pause, resume
from nova_workers.domain.triggers.rules.verdicts import day_began
from nova_workers.domain.triggers.sql.definitions import delete_trigger
from nova_workers.domain.triggers.sql.due import take_one
from tests.integration.triggers.trigger_harness import TriggerHarness
from tests.requirements import proves
from tests.support.harness.planned_engine import plan


@proves("triggers.overlap")
async def test_a_slot_that_comes_while_a_run_is_open_is_skipped(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make()
    for _ in range(3):
        await triggers.pass_time(60)
        await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["fired", "overlap", "overlap"]
    (run,) = await triggers.runs(trigger_id)
    assert run["id"] in (await triggers.firings(trigger_id))[1]["detail"]
    await triggers.end_runs()
    await triggers.pass_time(60)
    assert (await triggers.tick()).fired == 1


@proves("triggers.overlap")
async def test_queued_occurrences_run_one_after_the_other(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(overlap="queue")
    for _ in range(3):
        await triggers.pass_time(60)
        await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["fired", "queued", "queued"]
    for begun in (2, 3):
        assert (await triggers.tick()).fired == 0
        await triggers.end_runs()
        assert (await triggers.tick()).fired == 1
        runs = await triggers.runs(trigger_id)
        assert [run["status"] for run in runs] == ["succeeded"] * (begun - 1) + ["queued"]
    assert await triggers.outcomes(trigger_id) == ["fired"] * 3
    occurrences = [
        row["scheduled_for"].isoformat(timespec="microseconds") for row in await triggers.firings(trigger_id)
    ]
    assert len({run["thread_id"] for run in runs}) == 3
    assert [row["run_id"] for row in await triggers.firings(trigger_id)] == [run["id"] for run in runs]
    assert occurrences == sorted(occurrences)


@proves("triggers.overlap")
async def test_many_tickers_begin_one_queued_occurrence(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(overlap="queue")
    for _ in range(5):
        await triggers.pass_time(60)
        await triggers.tick()
    tickers = [triggers.ticker() for _ in range(6)]
    for ended in range(1, 5):
        await triggers.end_runs()
        await asyncio.gather(*(ticker.tick() for ticker in tickers))
        assert [run["status"] for run in await triggers.runs(trigger_id)] == ["succeeded"] * ended + ["queued"]


@pytest.mark.parametrize("stopped_by", ["delete", "switch", "pause"])
@proves("triggers.overlap")
async def test_a_trigger_that_stops_drops_its_queued_occurrences(triggers: TriggerHarness, stopped_by: str) -> None:
    trigger_id = await triggers.make(overlap="queue", pause_after_failures=1)
    for _ in range(3):
        await triggers.pass_time(60)
        await triggers.tick()
    if stopped_by == "delete":
        async with triggers.database.connection() as connection:
            await delete_trigger(connection, triggers.harness.tenant_id, trigger_id)
    elif stopped_by == "switch":
        await triggers.patch(trigger_id, enabled=False)
    await triggers.end_runs("failed" if stopped_by == "pause" else "succeeded")
    assert (await triggers.tick()).fired == 0
    assert await triggers.outcomes(trigger_id) == ["fired", "stopped", "stopped"]


@proves("triggers.overlap")
async def test_a_queued_slot_waits_while_its_agent_is_paused(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(overlap="queue")
    for _ in range(2):
        await triggers.pass_time(60)
        await triggers.tick()
    await triggers.end_runs()
    switch = Switch("tenant", triggers.harness.tenant_id)
    async with triggers.database.connection() as connection:
        await pause(connection, switch, None)
    assert (await triggers.tick()).fired == 0
    async with triggers.database.connection() as connection:
        await resume(connection, switch)
    assert (await triggers.tick()).fired == 1
    assert await triggers.outcomes(trigger_id) == ["fired", "fired"]


@proves("triggers.overlap")
async def test_a_slot_cancels_what_an_earlier_one_began(triggers: TriggerHarness) -> None:
    harness = triggers.harness
    trigger_id = await triggers.make(overlap="cancel_other", prompt=plan(doors={0: "thinking"}))
    worker = harness.worker(control=True)
    await harness.wait_for_control_channel()
    await triggers.pass_time(60)
    await triggers.tick()
    occurrence = await harness.start_next(worker)
    await harness.engine.reached("thinking")
    await triggers.pass_time(60)
    assert (await triggers.tick()).fired == 1
    await occurrence
    await triggers.pass_time(60)
    assert (await triggers.tick()).fired == 1
    first, second, third = await triggers.runs(trigger_id)
    assert (first["status"], second["status"], third["status"]) == ("canceled", "canceled", "queued")
    assert (second["attempt"], second["stop_reason"]) == (0, "aborted")


@proves("triggers.catch-up")
async def test_of_many_missed_occurrences_the_latest_fires(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make()
    await triggers.pass_time(60 * 10 + 5)
    ticked = await triggers.tick()
    assert (ticked.fired, ticked.skipped) == (1, 1)
    passed_over, fired = await triggers.firings(trigger_id)
    assert passed_over["skip_reason"] == "caught_up"
    assert passed_over["detail"] == "9 occurrences from here on came late; a later one fired in their place."
    created_at = (await triggers.get(trigger_id)).created_at
    assert passed_over["scheduled_for"] == created_at + timedelta(seconds=60)
    assert fired["scheduled_for"] == created_at + timedelta(seconds=600)
    assert (await triggers.get(trigger_id)).next_slot_at == created_at + timedelta(seconds=660)


@pytest.mark.parametrize(("overlap", "missed"), [("skip", 12), ("queue", 12), ("cancel_other", 12), ("skip", 101)])
@proves("triggers.catch-up")
async def test_each_missed_slot_fires_where_that_is_wanted(triggers: TriggerHarness, overlap: str, missed: int) -> None:
    trigger_id = await triggers.make(catchup="each", overlap=overlap, catchup_s=86_400)
    await triggers.pass_time(60 * missed + 5)
    for _ in range(missed):
        assert (await triggers.tick()).fired == 1
        assert (await triggers.tick()).fired == 0
        await triggers.end_runs()
    rows = await triggers.firings(trigger_id)
    assert [row["outcome"] for row in rows] == ["fired"] * missed
    assert [run["status"] for run in await triggers.runs(trigger_id)] == ["succeeded"] * missed
    created_at = (await triggers.get(trigger_id)).created_at
    assert [row["scheduled_for"] for row in rows] == [
        created_at + timedelta(seconds=60 * at) for at in range(1, missed + 1)
    ]


@proves("triggers.catch-up")
async def test_what_is_longer_ago_than_the_window_is_skipped_in_one_row(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(schedule="600", catchup_s=1200)
    await triggers.pass_time(600 * 10 + 5)
    await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["missed", "caught_up", "fired"]
    missed, passed_over, _ = await triggers.firings(trigger_id)
    assert missed["detail"] == "8 occurrences from here on came more than 1200 s too late."
    assert passed_over["detail"].startswith("It came late")
    at = await triggers.make("at", (datetime.now(UTC) + timedelta(hours=1)).isoformat(), catchup_s=0)
    await triggers.pass_time(2 * 3600, at)
    await triggers.tick()
    assert await triggers.outcomes(at) == ["missed"]
    assert (await triggers.get(at)).enabled is False


@proves("triggers.catch-up")
async def test_without_a_catchup_window_an_occurrence_still_fires_at_a_late_tick(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(catchup_s=0)
    await triggers.pass_time(61.2)
    assert (await triggers.tick()).fired == 1
    await triggers.end_runs()
    # The fleet is down: the latest occurrence is on time, the two before it within three minutes, the earlier ones not.
    await triggers.pass_time(600)
    await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["fired", "missed", "caught_up", "fired"]
    _, missed, passed_over, _ = await triggers.firings(trigger_id)
    assert missed["detail"] == "7 occurrences from here on came more than 180 s too late."
    assert passed_over["detail"].startswith("2 occurrences")


async def test_a_long_absence_is_not_gone_through_slot_by_occurrence(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make("cron", "* * * * * *", catchup_s=2_592_000)
    await triggers.database.execute(
        "UPDATE triggers SET next_slot_at = now() - interval '1 year', next_fire_at = now() - interval '1 year'"
    )
    began = datetime.now(UTC)
    await triggers.tick()
    assert datetime.now(UTC) - began < timedelta(seconds=60)
    missed, passed_over, fired = await triggers.firings(trigger_id)
    assert missed["detail"].startswith("At least 100 occurrences")
    assert passed_over["detail"].startswith("At least 100 occurrences")
    assert datetime.now(UTC) - fired["scheduled_for"] < timedelta(seconds=60)


@proves("triggers.limits")
async def test_a_day_has_no_more_runs_than_it_may(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(catchup="each", overlap="queue", max_runs_per_day=3)
    await triggers.pass_time(60 * 5 + 5)
    await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["fired", *["queued"] * 2, *["max_runs_per_day"] * 2]
    for _ in range(3):
        await triggers.end_runs()
        await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["fired"] * 3 + ["max_runs_per_day"] * 2
    await triggers.pass_time(60)
    await triggers.tick()
    assert (await triggers.outcomes(trigger_id))[-1] == "max_runs_per_day"
    # What began before the tenant's midnight is of another day.
    await triggers.database.execute("UPDATE runs SET created_at = created_at - interval '25 hours'")
    await triggers.pass_time(60)
    assert (await triggers.tick()).fired == 1


@proves("triggers.limits")
async def test_the_day_is_the_tenants(triggers: TriggerHarness) -> None:
    await triggers.make(overlap="queue", max_runs_per_day=1)
    for zone in ("Etc/GMT+12", "Pacific/Kiritimati"):
        await triggers.database.execute("UPDATE tenants SET timezone = :timezone", timezone=zone)
        await triggers.database.execute("DELETE FROM trigger_firings")
        await triggers.database.execute("DELETE FROM runs")
        await triggers.pass_time(60)
        assert (await triggers.tick()).fired == 1
        began = await triggers.database.fetchval("SELECT date_trunc('day', now(), :zone)", zone=zone)
        await triggers.end_runs()
        await triggers.database.execute(
            "UPDATE runs SET created_at = :created_at", created_at=began - timedelta(seconds=1)
        )
        await triggers.pass_time(60)
        assert (await triggers.tick()).fired == 1
        await triggers.end_runs()
        await triggers.database.execute("UPDATE runs SET created_at = :created_at", created_at=began)
        await triggers.pass_time(60)
        assert (await triggers.tick()).fired == 0


@pytest.mark.parametrize(
    ("zone", "began", "after"),
    [
        ("America/Havana", "2026-11-01T04:00", "2026-11-02T05:00"),
        ("Atlantic/Azores", "2026-10-25T00:00", "2026-10-26T01:00"),
    ],
)
@proves("triggers.limits")
async def test_a_midnight_that_comes_twice_begins_one_day(
    triggers: TriggerHarness, zone: str, began: str, after: str
) -> None:
    await triggers.database.execute("UPDATE tenants SET timezone = :timezone", timezone=zone)
    trigger_id = await triggers.make()
    async with triggers.database.connection() as connection:
        trigger = await take_one(connection, triggers.harness.tenant_id, trigger_id)
    first, second = (datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (began, after))
    for minutes in range(0, 25 * 60, 15):
        assert day_began(replace(trigger, now=first + timedelta(minutes=minutes))) == first
    assert day_began(replace(trigger, now=first - timedelta(seconds=1))) == first - timedelta(days=1)
    assert day_began(replace(trigger, now=second)) == second


@proves("triggers.limits")
async def test_a_day_costs_no_more_than_it_may(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(max_cost_usd_per_day=0.5)
    worker = triggers.harness.worker()
    for _ in range(3):
        await triggers.pass_time(60)
        await triggers.tick()
        await triggers.harness.settle(worker)
    # A run of the engine costs $0.25.
    assert await triggers.outcomes(trigger_id) == ["fired", "fired", "max_cost_usd_per_day"]
    assert (await triggers.firings(trigger_id))[2]["detail"] == "Its runs of the day cost $0.5000 of $0.5."


@proves("triggers.limits")
async def test_a_run_whose_call_the_rest_of_the_day_does_not_afford_is_refused_once(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(max_cost_usd_per_day=0.4, pause_after_failures=1)
    worker = triggers.harness.worker()

    async def occur(times: int) -> list[tuple[str, str | None]]:
        for _ in range(times):
            await triggers.pass_time(60)
            await triggers.tick()
            await triggers.harness.settle(worker)
        return [(run["status"], run["refused_by"]) for run in await triggers.runs(trigger_id)]

    ended: list[tuple[str, str | None]] = [("succeeded", None), ("failed", "trigger")]
    assert await occur(4) == ended
    assert await triggers.outcomes(trigger_id) == ["fired", "fired", *["max_cost_usd_per_day"] * 2]
    why = "Its runs of the day cost $0.2500 of $0.4, and the rest did not afford the call of the last one."
    assert (await triggers.firings(trigger_id))[3]["detail"] == why
    # It is no failure of the trigger.
    await triggers.tick()
    assert (await triggers.get(trigger_id)).paused_reason is None
    # A person may try; a changed trigger is tried once.
    await triggers.firer.fire(triggers.harness.tenant_id, trigger_id)
    ended.append(("failed", "trigger"))
    assert await occur(1) == ended
    await triggers.database.execute("UPDATE triggers SET max_cost_usd_per_day = 0.6, updated_at = now()")
    ended += [("succeeded", None), ("failed", "trigger")]
    assert await occur(3) == ended


@proves("triggers.limits")
async def test_an_occurrence_is_not_skipped_for_a_budget_of_others(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(max_cost_usd_per_day=9)
    await triggers.database.execute("UPDATE tenants SET max_cost_usd_per_day = 0.1")
    worker = triggers.harness.worker()
    for _ in range(2):
        await triggers.pass_time(60)
        await triggers.tick()
        await triggers.harness.settle(worker)
    assert [(run["status"], run["refused_by"]) for run in await triggers.runs(trigger_id)] == [("failed", "tenant")] * 2


@proves("triggers.limits")
async def test_what_its_open_runs_have_cost_counts_in_the_day(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(max_cost_usd_per_day=0.5, overlap="cancel_other", prompt=plan(["ask:x"]))
    worker = triggers.harness.worker()
    for _ in range(2):
        await triggers.firer.fire(triggers.harness.tenant_id, trigger_id)
        await triggers.harness.settle(worker)
    await triggers.pass_time(60)
    await triggers.tick()
    assert [run["status"] for run in await triggers.runs(trigger_id)] == ["waiting", "waiting"]
    assert await triggers.outcomes(trigger_id) == ["fired", "fired", "max_cost_usd_per_day"]
    # What only waited since midnight cost nothing today.
    await triggers.database.execute("UPDATE runs SET queued_at = queued_at - interval '25 hours'")
    await triggers.pass_time(60)
    assert (await triggers.tick()).fired == 1


@proves("triggers.failures")
async def test_failures_in_a_row_pause_it_with_the_reason(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(pause_after_failures=3)
    for at in range(3):
        await triggers.pass_time(60)
        assert (await triggers.tick()).fired == 1
        await triggers.end_runs("failed", f"error {at}")
    assert (await triggers.tick()).paused == 1
    paused = await triggers.get(trigger_id)
    assert (paused.enabled, paused.failures, paused.next_fire_at, paused.next_slot_at) == (True, 3, None, None)
    assert paused.paused_reason == "3 runs in a row failed. The last one: error 2"
    # Counted and reported once, however many ticks there are.
    await triggers.tick()
    assert (await triggers.get(trigger_id)).failures == 3
    assert await triggers.notifications(trigger_id) == [
        f"Trigger {trigger_id} of agent planned is paused: 3 runs in a row failed. The last one: error 2. Fix the "
        f"cause, then resume it with `nova triggers resume {trigger_id}`."
    ]
    await triggers.pass_time(600)
    assert (await triggers.tick()).fired == 0
    # Neither a switch nor another time ends the pause.
    assert (await triggers.patch(trigger_id, enabled=True, schedule="120")).next_fire_at is None
    resumed = await triggers.resume(trigger_id)
    assert (resumed.failures, resumed.paused_reason) == (0, None)
    await triggers.pass_time(121)
    assert (await triggers.tick()).fired == 1


@proves("triggers.failures")
async def test_a_success_resets_and_a_cancel_says_nothing(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(pause_after_failures=3)
    for status, failures in (("failed", 1), ("failed", 2), ("canceled", 2), ("succeeded", 0), ("failed", 1)):
        await triggers.pass_time(60)
        assert (await triggers.tick()).fired == 1
        await triggers.end_runs(status)
        await triggers.tick()
        assert (await triggers.get(trigger_id)).failures == failures


@proves("triggers.failures")
async def test_a_budget_that_was_spent_is_no_failure_of_the_trigger(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(pause_after_failures=1)
    await triggers.pass_time(60)
    await triggers.tick()
    await triggers.database.execute("UPDATE runs SET error_kind = 'budget_exceeded'")
    await triggers.end_runs("failed", "Today's budget is spent.")
    assert (await triggers.tick()).paused == 0
    assert (await triggers.get(trigger_id)).failures == 0


@pytest.mark.parametrize(
    ("ended", "failures", "paused"),
    [("ffsff", 2, False), ("sfff", 3, True), ("fffs", 0, False), ("ff", 2, False), ("cfcfcf", 3, True)],
)
@proves("triggers.failures")
async def test_runs_that_ended_since_the_last_look_count_in_their_order(
    triggers: TriggerHarness, ended: str, failures: int, paused: bool
) -> None:
    trigger_id = await triggers.make(pause_after_failures=3)
    names = {"f": "failed", "s": "succeeded", "c": "canceled"}
    for at, letter in enumerate(ended):
        firing, _ = await triggers.firer.fire(triggers.harness.tenant_id, trigger_id)
        await triggers.database.execute(
            "UPDATE runs SET status = :status, finished_at = now() + :at * interval '1 ms' WHERE id = :run_id",
            run_id=firing.run_id,
            status=names[letter],
            at=at,
        )
    assert (await triggers.tick()).paused == paused
    view = await triggers.get(trigger_id)
    assert (view.failures, view.paused_reason is not None) == (failures, paused)


async def test_it_never_pauses_where_that_is_not_wanted(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(pause_after_failures=0)
    for _ in range(8):
        await triggers.pass_time(60)
        assert (await triggers.tick()).fired == 1
        await triggers.end_runs("failed")
    await triggers.tick()
    assert (await triggers.get(trigger_id)).failures == 8
