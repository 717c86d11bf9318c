"""Active tasks are worked on: one run at a time, when due, despite concurrent ticks and crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import pytest

from nova_workers.base.errors import IllegalTransition, NotFound
from nova_workers.contracts.http.tasks import StepPatch, TaskPatch
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.prompts.rules import work_words
from nova_workers.domain.runs.rules.waiting import Answer
from nova_workers.domain.runs.sql.fleet import Switch, pause, resume
from nova_workers.domain.tasks.rules.scheduling import TaskScheduler
from nova_workers.domain.tasks.rules.service import PERSON, TaskActor
from nova_workers.ledger.work import Work
from tests.integration.scheduling.task_harness import OWNER, TaskHarness
from tests.requirements import proves
from tests.support.harness.fault_injection import Crashed
from tests.support.harness.renames import begin_rename, move_all

ASKS = {"tool": {"name": "ask_user", "input": {"question": "Which one?"}}}


async def test_a_new_task_is_worked_on_at_once_and_then_every_hour(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    assert await task_harness.tick() == 1
    (run,) = await task_harness.runs(task)
    assert (run["agent_id"], run["queue"], run["content"][0]["text"]) == (OWNER, "background", work_words(task.id))
    now = await task_harness.get(task)
    assert (now.working_run_id, now.parked_reason) == (run["id"], None)
    assert now.work_at is not None
    assert timedelta(minutes=59) < now.work_at - run["created_at"] < timedelta(minutes=61)

    await task_harness.work()
    assert (await task_harness.get(task)).working_run_id is None
    assert await task_harness.tick() == 0
    await task_harness.pass_hour()
    assert await task_harness.tick() == 1


@proves("work.once")
async def test_concurrent_schedulers_start_one_run_per_task(task_harness: TaskHarness) -> None:
    tasks = [await task_harness.task("Sweep") for _ in range(4)]
    await asyncio.gather(*(task_harness.another().tick() for _ in range(8)))
    assert [len(await task_harness.runs(task)) for task in tasks] == [1, 1, 1, 1]
    assert len(task_harness.harness.bells.waiting) == 4


@proves("work.once")
@pytest.mark.parametrize("asks", [False, True], ids=["running", "waiting"])
async def test_while_a_run_is_in_flight_no_other_is_begun(task_harness: TaskHarness, asks: bool) -> None:
    script = [ASKS] if asks else []
    await task_harness.harness.add_agent(
        "other",
        {
            "name": "Other",
            "engine": "scripted",
            "capabilities": {"user": {}},
            "engine_config": {"script": [*script, {"say": "Good."}]},
        },
    )
    task = await task_harness.task("Sweep", owner="other")
    assert await task_harness.tick() == 1
    (run,) = await task_harness.runs(task)
    if asks:
        await task_harness.harness.settle(*task_harness.harness.workers)
        assert await task_harness.harness.status(run["id"]) == "waiting"
    for _ in range(3):
        await task_harness.pass_hour()
        assert await task_harness.tick() == 0

    # Work that became due meanwhile is done after it.
    if asks:
        await task_harness.harness.waiting.answer(task_harness.tenant_id, run["id"], None, Answer(text="this one"))
    await task_harness.harness.settle(*task_harness.harness.workers)
    assert await task_harness.harness.status(run["id"]) == "succeeded"
    assert await task_harness.tick() == 1


class _SilentDispatcher:
    """The dispatcher of a process that dies before it rings."""

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        raise Crashed

    def ring_effects(self) -> None:
        raise Crashed

    def ring_deliveries(self) -> None:
        raise Crashed


@proves("work.crash")
async def test_a_scheduler_that_dies_before_it_rings_loses_nothing(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    harness = task_harness.harness
    dying = TaskScheduler(Work(harness.database, _SilentDispatcher()), harness.settings.tasks)
    with pytest.raises(Crashed):
        await dying.tick()
    assert await task_harness.tick() == 0
    assert task_harness.harness.bells.waiting == []

    await task_harness.harness.age_doorbells()
    await task_harness.harness.reconciler.reconcile()
    await task_harness.work()
    assert [run["status"] for run in await task_harness.runs(task)] == ["succeeded"]


@proves("work.crash")
@pytest.mark.parametrize(("table", "refuses"), [("runs", "source <> 'task'"), ("tasks", "working_run_id IS NULL")])
async def test_a_run_and_its_tasks_reference_are_written_together(
    task_harness: TaskHarness, table: str, refuses: str
) -> None:
    task = await task_harness.task("Sweep")
    await task_harness.harness.database.execute(f"ALTER TABLE {table} ADD CONSTRAINT no CHECK ({refuses})")
    assert await task_harness.tick() == 0
    assert (await task_harness.get(task)).working_run_id is None
    assert task_harness.harness.bells.waiting == []
    await task_harness.harness.database.execute(f"ALTER TABLE {table} DROP CONSTRAINT no")
    assert await task_harness.tick() == 1


@proves("work.parked")
async def test_a_task_whose_steps_are_all_delegated_is_parked_until_a_subtask_ends(
    task_harness: TaskHarness,
) -> None:
    task = await task_harness.task("Sweep", "Mop")
    first, second = (
        await task_harness.subtask(task, 0, status="draft"),
        await task_harness.subtask(task, 1, status="draft"),
    )
    assert await task_harness.tick() == 0
    parked = await task_harness.get(task)
    assert parked.parked_reason == f"waits for subtasks {first.id}, {second.id}"
    assert parked.work_at is None
    await task_harness.pass_hour()
    assert await task_harness.tick() == 0

    await task_harness.tasks.cancel(task_harness.tenant_id, PERSON, first.id)
    woken = await task_harness.get(task)
    (run,) = await task_harness.runs(task)
    assert (woken.parked_reason, woken.working_run_id) == (None, run["id"])
    # The message about the end is the invocation: there is no second one.
    assert await task_harness.tick() == 0
    await task_harness.work()
    await task_harness.pass_hour()
    assert await task_harness.tick() == 1


@proves("work.parked")
async def test_a_task_that_delegated_its_last_step_is_parked_when_its_run_ends(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    await task_harness.tick()
    subtask = await task_harness.subtask(task, status="draft")
    await task_harness.harness.settle(*task_harness.harness.workers)
    await task_harness.tick()
    assert (await task_harness.get(task)).parked_reason == f"waits for subtask {subtask.id}"


@proves("work.progress")
async def test_a_task_without_progress_is_parked_with_a_notice(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    for idle in (1, 2):
        assert await task_harness.work() == 1
        assert (await task_harness.get(task)).idle_invocations == idle
        await task_harness.pass_hour()
    assert await task_harness.work() == 1
    parked = await task_harness.get(task)
    assert (parked.parked_reason, parked.work_at) == ("3 runs in a row changed nothing", None)
    assert task_harness.harness.bells.deliveries_rung == 1
    assert await task_harness.notices() == [
        f"Task {task.id} (Tidy up) is parked: 3 runs in a row changed nothing. Work stops until it is changed, "
        f"or started with `nova tasks run {task.id}`."
    ]
    await task_harness.pass_hour()
    assert await task_harness.work() == 0


@proves("work.progress")
async def test_a_task_with_progress_is_not_parked(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep", "Mop", "Dust", "Rest", "Go home")
    for step in task.steps[:4]:
        assert await task_harness.tick() == 1
        (*_, run) = await task_harness.runs(task)
        agent = TaskActor(OWNER, run["id"], run["thread_id"])
        await task_harness.tasks.plans.update_step(
            task_harness.tenant_id, agent, task.id, step.id, StepPatch(done=True)
        )
        await task_harness.harness.settle(*task_harness.harness.workers)
        await task_harness.scheduler.tick()
        assert (await task_harness.get(task)).idle_invocations == 0
        await task_harness.pass_hour()


@proves("work.progress")
@pytest.mark.parametrize(
    ("kind", "retryable", "idle"),
    [("rate_limit", True, 0), ("budget_exceeded", False, 0), ("auth_failure", False, 0), ("model_error", False, 1)],
)
async def test_a_temporary_failure_does_not_count_as_lack_of_progress(
    task_harness: TaskHarness, kind: str, retryable: bool, idle: int
) -> None:
    error = {"kind": kind, "message": "No", "retryable": retryable}
    await task_harness.harness.add_agent(
        "ill", {"name": "Ill", "engine": "scripted", "engine_config": {"script": [{"error": error}]}}
    )
    task = await task_harness.task("Sweep", owner="ill")
    await task_harness.work()
    assert [run["status"] for run in await task_harness.runs(task)] == ["failed"]
    assert (await task_harness.get(task)).idle_invocations == idle


@proves("work.wake")
async def test_a_persons_change_is_worked_on_at_once_and_an_agents_as_scheduled(
    task_harness: TaskHarness,
) -> None:
    task = await task_harness.task("Sweep")
    for _ in range(3):
        await task_harness.work()
        await task_harness.pass_hour()
    assert (await task_harness.get(task)).parked_reason is not None

    elsewhere = TaskActor(OWNER, "run_else", "thr_else")
    await task_harness.tasks.update(task_harness.tenant_id, elsewhere, task.id, TaskPatch(title="Tidy up well"))
    back = await task_harness.get(task)
    assert (back.parked_reason, back.idle_invocations) == (None, 0)
    assert await task_harness.tick() == 0
    await task_harness.tasks.plans.update_step(
        task_harness.tenant_id, PERSON, task.id, task.steps[0].id, StepPatch(details="Under the table too")
    )
    assert await task_harness.tick() == 1


@proves("work.wake")
async def test_a_wake_during_a_run_is_worked_on_after_it(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    await task_harness.tick()
    await task_harness.tasks.update(task_harness.tenant_id, PERSON, task.id, TaskPatch(title="Tidy up well"))
    assert await task_harness.tick() == 0
    await task_harness.harness.settle(*task_harness.harness.workers)
    assert await task_harness.tick() == 1


@proves("work.now")
async def test_run_now_works_at_any_hour_and_on_parked_tasks(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    for _ in range(3):
        await task_harness.work()
        await task_harness.pass_hour()
    await task_harness.close(task_harness.tenant_id)
    run_id = (await task_harness.scheduler.run_now(task_harness.tenant_id, task.id)).id
    # Repeated it is the same run, also concurrently.
    again = await asyncio.gather(*(task_harness.another().run_now(task_harness.tenant_id, task.id) for _ in range(3)))
    assert {run.id for run in again} == {run_id}
    assert [bell.run_id for bell in task_harness.harness.bells.waiting] == [run_id]
    begun = await task_harness.get(task)
    assert (begun.parked_reason, begun.idle_invocations, begun.working_run_id) == (None, 0, run_id)
    await task_harness.work()
    assert (await task_harness.get(task)).idle_invocations == 1


@proves("work.now")
async def test_run_now_is_refused_where_no_agent_would_work(task_harness: TaskHarness) -> None:
    draft = await task_harness.task("Sweep", status="draft")
    with pytest.raises(IllegalTransition, match=r"Task 1 is 'draft'; only an active task is worked on. Activate it"):
        await task_harness.scheduler.run_now(task_harness.tenant_id, draft.id)
    for tenant_id, number in ((task_harness.tenant_id, 99), ("ten_else", draft.id)):
        with pytest.raises(NotFound, match="There is no task"):
            await task_harness.scheduler.run_now(tenant_id, number)
    task = await task_harness.task("Sweep")
    await _delete_owner(task_harness)
    with pytest.raises(NotFound, match="'clerk', who owns task 2, was deleted"):
        await task_harness.scheduler.run_now(task_harness.tenant_id, task.id)


@proves("work.ended")
async def test_no_work_continues_on_an_ended_task(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    child = await task_harness.subtask(task)
    assert await task_harness.tick() == 1
    (run,) = await task_harness.runs(child)
    await task_harness.tasks.cancel(task_harness.tenant_id, PERSON, task.id)
    ended = await task_harness.get(child)
    assert (ended.status, ended.work_at, ended.working_run_id, ended.parked_reason) == ("canceled", None, None, None)
    await task_harness.work()
    assert await task_harness.harness.status(run["id"]) == "canceled"
    assert task_harness.harness.engine.model_calls == []


@proves("work.ended")
async def test_an_agent_that_ends_its_task_finishes_its_own_run(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    await task_harness.tick()
    (run,) = await task_harness.runs(task)
    await task_harness.tasks.complete(
        task_harness.tenant_id, TaskActor(OWNER, run["id"], run["thread_id"]), task.id, "Clean."
    )
    await task_harness.work()
    assert await task_harness.harness.status(run["id"]) == "succeeded"
    assert await task_harness.tick() == 0


@proves("work.ended")
async def test_a_new_owner_begins_at_once_and_the_old_one_stops(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    await task_harness.tick()
    (old,) = await task_harness.runs(task)
    handing = TaskActor(OWNER, "run_else", "thr_else")
    await task_harness.tasks.update(task_harness.tenant_id, handing, task.id, TaskPatch(owner_agent_id="scripted"))
    assert await task_harness.work() == 1
    (new,) = await task_harness.runs(task)
    assert (await task_harness.harness.status(old["id"]), new["agent_id"]) == ("canceled", "scripted")


async def test_a_task_of_a_deleted_agent_is_parked_until_it_has_another(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    await _delete_owner(task_harness)
    assert await task_harness.tick() == 0
    assert (await task_harness.get(task)).parked_reason == "Agent 'clerk', who owns task 1, was deleted."
    await task_harness.tasks.update(task_harness.tenant_id, PERSON, task.id, TaskPatch(owner_agent_id="scripted"))
    assert await task_harness.tick() == 1


@pytest.mark.parametrize("scope", ["fleet", "tenant", "agent"])
async def test_tasks_under_a_pause_are_not_begun(
    task_harness: TaskHarness, scope: Literal["fleet", "tenant", "agent"]
) -> None:
    await task_harness.task("Sweep")
    switch = Switch(scope, task_harness.tenant_id, OWNER)
    async with task_harness.harness.database.transaction() as connection:
        await pause(connection, switch, "maintenance")
    assert await task_harness.tick() == 0
    async with task_harness.harness.database.transaction() as connection:
        await resume(connection, switch)
    assert await task_harness.tick() == 1


async def test_a_task_that_names_another_tenant_s_run_gets_nothing_of_it(task_harness: TaskHarness) -> None:
    """As in an archive written by hand."""
    task = await task_harness.task("Sweep")
    await task_harness.tick()
    database = task_harness.harness.database
    await database.execute("INSERT INTO tenants (id, name) VALUES ('ten_else', 'Else')")
    await database.execute("UPDATE runs SET tenant_id = 'ten_else'")
    await database.execute("UPDATE tasks SET idle_invocations = 2, work_at = now()")
    # For this tenant there is no such run: it counts as ended, without effect, and is not reported.
    assert await task_harness.tick() == 1
    assert (await task_harness.get(task)).idle_invocations == 2
    assert await task_harness.notices() == []


async def _delete_owner(task_harness: TaskHarness) -> None:
    await task_harness.harness.database.execute(
        "UPDATE agents SET deleted_at = now() WHERE id = :agent_id", agent_id=OWNER
    )


@proves("agents.rename")
async def test_a_task_keeps_its_thread_when_its_owner_is_renamed(task_harness: TaskHarness) -> None:
    task = await task_harness.task("Sweep")
    assert await task_harness.tick() == 1
    await task_harness.work()
    await begin_rename(task_harness.harness, OWNER, "renamed")
    await task_harness.pass_hour()
    assert await task_harness.tick() == 0
    # A person's request is accepted, on the thread that has not moved yet.
    await task_harness.scheduler.run_now(task_harness.tenant_id, task.id)
    await move_all(task_harness.harness)
    await task_harness.work()
    now = await task_harness.get(task)
    assert (now.owner_agent_id, now.thread_id, now.parked_reason) == ("renamed", task.thread_id, None)
    assert [(run["agent_id"], run["status"]) for run in await task_harness.runs(task)] == [("renamed", "succeeded")] * 2
