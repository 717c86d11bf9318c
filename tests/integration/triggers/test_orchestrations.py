"""Triggers that start orchestrations: once for each occurrence, and with the rules of runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nova_workers.base.errors import InvalidInput
from nova_workers.domain.triggers.sql.due import find_orchestrating
from nova_workers.ledger.database import Row
from tests.integration.triggers.trigger_harness import TriggerHarness
from tests.requirements import proves
from tests.support.harness.fault_injection import Crashed, FaultInjector
from tests.support.harness.trees import call, complete, script, spawn
from tests.support.harness.workers import AGENT


async def _make(triggers: TriggerHarness, *items: dict[str, Any], **fields: Any) -> str:
    fields = {"agent_id": "scripted", "action": "orchestrate", "prompt": script(*items), **fields}
    return await triggers.make(**fields)


async def _trees(triggers: TriggerHarness) -> list[Row]:
    return await triggers.database.fetch("SELECT * FROM orchestrations ORDER BY id")


async def _settle(triggers: TriggerHarness) -> None:
    harness = triggers.harness
    await harness.settle(harness.workers[0] if harness.workers else harness.worker())


async def _come_due(triggers: TriggerHarness) -> None:
    await triggers.pass_time(60)
    await triggers.tick()


@proves("triggers.orchestrations")
async def test_an_occurrence_starts_an_orchestration_with_the_prompt_as_its_task(triggers: TriggerHarness) -> None:
    trigger_id = await _make(triggers, spawn(complete("part")), complete("Reviewed."))
    await _come_due(triggers)
    await _settle(triggers)
    (tree,) = await _trees(triggers)
    (firing,) = await triggers.firings(trigger_id)
    (run,) = await triggers.runs(trigger_id)
    assert (tree["agent_id"], tree["source"], tree["queue"]) == ("scripted", "trigger", "background")
    assert (firing["outcome"], firing["run_id"]) == ("fired", run["id"])
    assert (run["thread_id"], run["status"]) == (tree["thread_id"], "succeeded")
    assert run["meta"]["trigger_id"] == trigger_id
    assert tree["finished_at"] is not None


@proves("triggers.orchestrations")
async def test_many_tickers_start_one_orchestration(triggers: TriggerHarness) -> None:
    trigger_id = await _make(triggers, complete("once"))
    await triggers.pass_time(60)
    await asyncio.gather(*(triggers.ticker().tick() for _ in range(6)))
    assert len(await _trees(triggers)) == 1
    assert await triggers.outcomes(trigger_id) == ["fired"]


@proves("triggers.orchestrations")
@pytest.mark.parametrize("fault", ["crash_before", "crash_after"])
async def test_a_tick_that_crashes_at_its_commit_starts_one_orchestration(triggers: TriggerHarness, fault: Any) -> None:
    trigger_id = await _make(triggers, complete("once"))
    await triggers.pass_time(60)
    faults = FaultInjector()
    faults.plan(fault, "insert", nth=1)
    with pytest.raises(Crashed):
        await triggers.ticker(faults).tick()
    await triggers.tick()
    assert len(await _trees(triggers)) == 1
    assert await triggers.outcomes(trigger_id) == ["fired"]


async def test_an_occurrence_during_an_open_orchestration_is_skipped(triggers: TriggerHarness) -> None:
    trigger_id = await _make(triggers, spawn(call("ask_user", question="?")), complete("done"))
    await _come_due(triggers)
    await _settle(triggers)
    await _come_due(triggers)
    assert await triggers.outcomes(trigger_id) == ["fired", "overlap"]
    assert len(await _trees(triggers)) == 1


async def test_a_queued_occurrence_starts_when_the_orchestration_before_it_ends(triggers: TriggerHarness) -> None:
    trigger_id = await _make(triggers, complete("done"), overlap="queue")
    await _come_due(triggers)
    await _come_due(triggers)
    assert await triggers.outcomes(trigger_id) == ["fired", "queued"]
    await _settle(triggers)
    await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["fired", "fired"]
    await _settle(triggers)
    assert [tree["finished_at"] is not None for tree in await _trees(triggers)] == [True, True]


async def test_cancel_other_ends_the_whole_tree_of_the_earlier_occurrence(triggers: TriggerHarness) -> None:
    trigger_id = await _make(triggers, spawn(call("ask_user", question="?")), complete("x"), overlap="cancel_other")
    await _come_due(triggers)
    await _settle(triggers)
    await _come_due(triggers)
    await _settle(triggers)
    first, second = await _trees(triggers)
    assert await triggers.outcomes(trigger_id) == ["fired", "fired"]
    assert (first["finished_at"] is None, second["finished_at"] is None) == (False, True)


async def test_an_orchestration_that_cannot_be_started_is_a_skipped_occurrence(triggers: TriggerHarness) -> None:
    trigger_id = await _make(triggers, complete("x"))
    await triggers.database.execute(
        "INSERT INTO orchestration_configs (tenant_id, version, text, models_text, created_by)"
        " VALUES (:tenant_id, 1, 'defaults: {master_model: nowhere/none}', '', 'person')",
        tenant_id=triggers.harness.tenant_id,
    )
    await _come_due(triggers)
    (firing,) = await triggers.firings(trigger_id)
    assert (firing["outcome"], firing["skip_reason"]) == ("skipped", "orchestration")
    assert "nowhere" in firing["detail"]
    assert (await triggers.get(trigger_id)).paused_reason is None


async def _break(triggers: TriggerHarness) -> None:
    await triggers.database.execute("""UPDATE agents SET spec = spec || '{"trust": "none"}' WHERE id = 'scripted'""")


async def test_an_occurrence_whose_planning_breaks_is_skipped_and_the_others_fire(triggers: TriggerHarness) -> None:
    broken, good = await _make(triggers, complete("x")), await triggers.make()
    await triggers.pass_time(60)
    await _break(triggers)
    assert (await triggers.tick()).fired == 1
    assert len(await triggers.runs(good)) == 1
    (firing,) = await triggers.firings(broken)
    assert (firing["outcome"], firing["skip_reason"]) == ("skipped", "orchestration")
    assert "could not be planned" in firing["detail"]


async def test_queued_occurrences_whose_planning_breaks_do_not_hold_back_other_triggers(
    triggers: TriggerHarness,
) -> None:
    broken = await _make(triggers, complete("x"), overlap="queue")
    good = await _make(triggers, complete("x"), overlap="queue", agent_id=AGENT)
    for _ in range(3):
        await _come_due(triggers)
    await _settle(triggers)
    assert await triggers.outcomes(broken) == await triggers.outcomes(good) == ["fired", "queued", "queued"]
    await _break(triggers)
    ticker = triggers.ticker(batch=1)
    for _ in range(3):
        await ticker.tick()
    assert await triggers.outcomes(broken) == ["fired", "orchestration", "orchestration"]
    assert await triggers.outcomes(good) == ["fired", "fired", "queued"]


async def test_queued_orchestrations_of_a_paused_agent_are_not_planned(triggers: TriggerHarness) -> None:
    trigger_id = await _make(triggers, complete("done"), overlap="queue")
    await _come_due(triggers)
    await _come_due(triggers)
    await _settle(triggers)
    await triggers.database.execute("INSERT INTO switches (scope, tenant_id, target) VALUES ('fleet', '', '')")
    async with triggers.database.connection() as connection:
        assert await find_orchestrating(connection, limit=10) == []
    await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["fired", "queued"]
    await triggers.database.execute("DELETE FROM switches")
    await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["fired", "fired"]


async def test_the_cost_of_all_agents_counts_for_the_limit_of_the_day(triggers: TriggerHarness) -> None:
    trigger_id = await _make(triggers, spawn(complete("x")), complete("done"), max_cost_usd_per_day=1.0)
    await _come_due(triggers)
    await _settle(triggers)
    await triggers.database.execute(
        "UPDATE usage SET cost_usd = 2 WHERE thread_id IN"
        " (SELECT thread_id FROM orchestration_agents WHERE role = 'WORKER')"
    )
    await _come_due(triggers)
    assert await triggers.outcomes(trigger_id) == ["fired", "max_cost_usd_per_day"]


async def test_a_person_fires_an_orchestration(triggers: TriggerHarness) -> None:
    trigger_id = await _make(triggers, complete("by hand"))
    firing, _ = await triggers.firer.fire(triggers.harness.tenant_id, trigger_id)
    (tree,) = await _trees(triggers)
    assert firing.thread_id == tree["thread_id"]
    assert firing.manual


async def test_an_orchestration_takes_no_thread(triggers: TriggerHarness) -> None:
    thread_id = await triggers.harness.thread("scripted")
    with pytest.raises(InvalidInput, match="thread_id: an orchestration has threads of its own"):
        await _make(triggers, complete("x"), thread_id=thread_id)
    trigger_id = await triggers.make(agent_id="scripted", thread_id=thread_id)
    with pytest.raises(InvalidInput, match="thread_id"):
        await triggers.patch(trigger_id, action="orchestrate")
    changed = await triggers.patch(trigger_id, action="orchestrate", thread_id=None)
    assert changed.action == "orchestrate"
