"""The time limit of a run, in whatever state; time in which it waits does not count."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from nova_workers.contracts.waits import Answer
from nova_workers.ledger.database import Row
from tests.integration.runs.turns.test_live_events import events_of, replay_of
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness
from tests.support.waiting import pass_time


@pytest.fixture
async def fleet(harness: Harness) -> Harness:
    await harness.add_agent("hasty", {"name": "Hasty", "engine": "planned", "timeout_s": 60})
    await harness.add_agent("patient", {"name": "Patient", "engine": "planned", "timeout_s": 3_600})
    grants = {"user": {}}
    await harness.add_agent(
        "asker", {"name": "Asker", "engine": "scripted", "timeout_s": 3_600, "capabilities": grants}
    )
    return harness


async def _ended(harness: Harness, run_id: str) -> Row:
    row = await harness.run(run_id)
    assert (row["status"], row["stop_reason"], row["limit_reached"]) == ("failed", "timeout", "time")
    assert row["error_kind"] == "timeout"
    return row


@pytest.mark.parametrize(("message", "door"), [(plan(doors={0: "a"}), "a"), (plan(["wait:a"], []), "a")])
@proves("engine.limits")
async def test_a_run_that_takes_too_long_ends_in_its_model_or_a_tool_and_keeps_its_text(
    fleet: Harness, message: str, door: str
) -> None:
    run, slot = await fleet.begin(fleet.worker(), message, door, agent_id="hasty")
    await pass_time(61)
    await slot
    assert (await _ended(fleet, run.run_id))["result_text"].startswith("Step 0.")
    for events in (await events_of(fleet, run.run_id), await replay_of(fleet, run.run_id)):
        assert (events[-1]["stop_reason"], events[-1]["limit"]) == ("timeout", "time")
    open_calls = await fleet.database.fetchval("SELECT count(*) FROM tool_calls WHERE result IS NULL")
    assert open_calls == 0


async def test_time_counts_from_the_first_start_over_all_attempts(fleet: Harness) -> None:
    first, second = fleet.worker(), fleet.worker()
    run, _ = await fleet.begin(first, plan(["look"], ["wait:a"], []), "a", agent_id="patient")
    await first.crash()
    await fleet.recover()
    await fleet.database.execute("UPDATE runs SET started_at = now() - interval '2 hours'")
    asked = len(fleet.engine.model_calls)
    await fleet.settle(second)
    await _ended(fleet, run.run_id)
    assert len(fleet.engine.model_calls) == asked, "a run without time asks no model"


async def test_the_time_in_which_a_run_waits_for_a_person_does_not_count(fleet: Harness) -> None:
    worker = fleet.worker()
    items: list[dict[str, Any]] = [{"tool": {"name": "ask_user", "input": {"question": "Tea?"}}}, {"say": "ok"}]
    run = await fleet.submit(orjson.dumps({"script": items}).decode(), agent_id="asker")
    await fleet.settle(worker)
    await fleet.database.execute("UPDATE runs SET started_at = now() - interval '2 hours'")
    await fleet.database.execute("UPDATE run_waits SET created_at = now() - interval '119 minutes'")
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="yes"))
    await fleet.settle(worker)
    assert await fleet.status(run.run_id) == "succeeded"
