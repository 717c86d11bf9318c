"""Tasks on a real fleet: beat ticks, a worker schedules, an agent works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nova_workers.base.config import Settings
from nova_workers.contracts.http.tasks import TaskCreate, TaskPatch, TaskView
from nova_workers.contracts.http.wire import AgentCreate, AgentPatch
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.processes.fleet import Fleet, fleet_env

pytestmark = pytest.mark.fleet

_PATIENCE_S = 60.0


@pytest.fixture
async def fleet(settings: Settings) -> AsyncIterator[Fleet]:
    """Two workers, and beat with short intervals."""
    env = {**fleet_env(settings), "NOVA_TASKS__TICK_EVERY_S": "0.3", "NOVA_RUNS__RECONCILE_EVERY_S": "1"}
    async with Fleet(env, workers=2, beat=True) as fleet:
        yield fleet


async def _works_through(fleet: Fleet, *titles: str) -> TaskView:
    """Create a draft whose owner plays a script that does its steps and ends it."""
    create = {"id": "clerk", "name": "Clerk", "engine": "scripted", "capabilities": {"tasks": {}}}
    await fleet.client.agents.create(AgentCreate.model_validate(create))
    given = {"title": "Tidy up", "owner_agent_id": "clerk", "steps": [{"title": title} for title in titles]}
    task = await fleet.client.tasks.create(TaskCreate.model_validate(given))
    script: list[dict[str, Any]] = [
        {"tool": {"name": "task_update_step", "input": {"task_id": task.id, "step_id": step.id, "done": True}}}
        for step in task.steps
    ]
    script.append({"tool": {"name": "task_complete", "input": {"task_id": task.id, "outcome": "Clean."}}})
    script.append({"say": "All done."})
    await fleet.client.agents.patch("clerk", AgentPatch.model_validate({"engine_config": {"script": script}}))
    return task


async def _until(fleet: Fleet, task_id: int, status: str) -> TaskView:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            task = await fleet.client.tasks.get(task_id)
            if task.status == status:
                return task
            await asyncio.sleep(0.05)


@proves("work.fleet")
async def test_an_active_task_is_worked_on_until_it_is_done(fleet: Fleet, database: Database) -> None:
    await database.execute("UPDATE tenants SET work_from = 0, work_until = 24")
    task = await _works_through(fleet, "Sweep", "Mop", "Dust")
    await fleet.client.tasks.update(task.id, TaskPatch(status="active"))
    done = await _until(fleet, task.id, "done")
    assert ([step.done for step in done.steps], done.outcome) == ([True, True, True], "Clean.")
    (run,) = (await fleet.client.runs.list(thread_id=done.thread_id)).items
    assert (run.source, run.queue, run.agent_id) == ("task", "background", "clerk")
    assert (done.work_at, done.parked_reason) == (None, None)


# Tests without processes show it; that beat and workers do what is due is shown above.
@pytest.mark.long
@proves("work.now")
async def test_run_now_does_not_wait_for_working_hours(fleet: Fleet, database: Database) -> None:
    hour = await database.fetchval("SELECT extract(hour FROM now() AT TIME ZONE 'UTC')::int")
    await database.execute(
        "UPDATE tenants SET work_from = :work_from, work_until = :work_until",
        work_from=(hour + 2) % 24,
        work_until=(hour + 3) % 24,
    )
    task = await _works_through(fleet, "Sweep")
    await fleet.client.tasks.activate(task.id)
    run = await fleet.client.tasks.run(task.id)
    done = await _until(fleet, task.id, "done")
    assert [each.id for each in (await fleet.client.runs.list(thread_id=done.thread_id)).items] == [run.id]
