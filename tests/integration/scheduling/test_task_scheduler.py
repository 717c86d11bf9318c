"""Active tasks are worked on: one run at a time, when due, despite concurrent ticks and crashes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

from nova_workers.contracts.http.tasks import StepPatch, TaskPatch
from nova_workers.contracts.runs import Doorbell
from nova_workers.errors import IllegalTransition, NotFound
from nova_workers.ledger.runs.fleet import Switch, pause, resume
from nova_workers.prompts import work_words
from nova_workers.runs.waiting import Answer
from nova_workers.scheduling.tasks import TaskScheduler
from nova_workers.workspace.tasks.service import PERSON, TaskActor
from tests.integration.scheduling.task_office import OWNER, Office
from tests.requirements import proves
from tests.support.harness.fault_injection import Crashed

ASKS = {"tool": {"name": "ask_user", "input": {"question": "Which one?"}}}


async def test_a_new_task_is_worked_on_at_once_and_then_every_hour(office: Office) -> None:
    task = await office.task("Sweep")
    assert await office.tick() == 1
    (run,) = await office.runs(task)
    assert (run["agent_id"], run["queue"], run["content"][0]["text"]) == (OWNER, "background", work_words(task.id))
    now = await office.get(task)
    assert (now.working_run_id, now.parked_reason) == (run["id"], None)
    assert now.work_at is not None
    assert timedelta(minutes=59) < now.work_at - run["created_at"] < timedelta(minutes=61)

    await office.work()
    assert (await office.get(task)).working_run_id is None
    assert await office.tick() == 0
    await office.pass_hour()
    assert await office.tick() == 1


@proves("work.once")
async def test_any_number_of_schedulers_at_once_begin_one_run_a_task(office: Office) -> None:
    tasks = [await office.task("Sweep") for _ in range(4)]
    await asyncio.gather(*(office.another().tick() for _ in range(8)))
    assert [len(await office.runs(task)) for task in tasks] == [1, 1, 1, 1]
    assert len(office.harness.bells.waiting) == 4


@proves("work.once")
@pytest.mark.parametrize("asks", [False, True], ids=["running", "waiting"])
async def test_while_a_run_is_in_flight_no_other_is_begun(office: Office, asks: bool) -> None:
    script = [ASKS] if asks else []
    await office.harness.add_agent(
        "other",
        {
            "name": "Other",
            "engine": "scripted",
            "capabilities": {"user": {}},
            "engine_config": {"script": [*script, {"say": "Good."}]},
        },
    )
    task = await office.task("Sweep", owner="other")
    assert await office.tick() == 1
    (run,) = await office.runs(task)
    if asks:
        await office.harness.settle(*office.harness.workers)
        assert await office.harness.status(run["id"]) == "waiting"
    for _ in range(3):
        await office.pass_hour()
        assert await office.tick() == 0

    # What came due in the meantime is worked when that is over.
    if asks:
        await office.harness.waiting.answer(office.tenant_id, run["id"], None, Answer(text="this one"))
    await office.harness.settle(*office.harness.workers)
    assert await office.harness.status(run["id"]) == "succeeded"
    assert await office.tick() == 1


class _Deaf:
    """A dispatcher of a process that dies before it rings."""

    def ring_runs(self, bells: list[Doorbell]) -> None:
        raise Crashed

    def ring_effects(self) -> None:
        raise Crashed


@proves("work.crash")
async def test_a_scheduler_that_dies_before_it_rings_loses_nothing(office: Office) -> None:
    task = await office.task("Sweep")
    dying = TaskScheduler(office.harness.database, _Deaf(), office.harness.settings.tasks)  # pyright: ignore[reportArgumentType] - a sequence is a list here
    with pytest.raises(Crashed):
        await dying.tick()
    assert await office.tick() == 0
    assert office.harness.bells.waiting == []

    await office.harness.age_doorbells()
    await office.harness.reconciler.reconcile()
    await office.work()
    assert [run["status"] for run in await office.runs(task)] == ["succeeded"]


@proves("work.crash")
@pytest.mark.parametrize(("table", "refuses"), [("runs", "source <> 'task'"), ("tasks", "working_run_id IS NULL")])
async def test_a_run_and_what_its_task_says_of_it_are_there_together_or_not_at_all(
    office: Office, table: str, refuses: str
) -> None:
    task = await office.task("Sweep")
    await office.harness.database.execute(f"ALTER TABLE {table} ADD CONSTRAINT no CHECK ({refuses})")
    assert await office.tick() == 0
    assert (await office.get(task)).working_run_id is None
    assert office.harness.bells.waiting == []
    await office.harness.database.execute(f"ALTER TABLE {table} DROP CONSTRAINT no")
    assert await office.tick() == 1


@proves("work.parked")
async def test_a_task_whose_steps_are_all_with_others_is_parked_until_one_of_them_ends(office: Office) -> None:
    task = await office.task("Sweep", "Mop")
    first, second = await office.subtask(task, 0, status="draft"), await office.subtask(task, 1, status="draft")
    assert await office.tick() == 0
    parked = await office.get(task)
    assert parked.parked_reason == f"waits for subtasks {first.id}, {second.id}"
    assert parked.work_at is None
    await office.pass_hour()
    assert await office.tick() == 0

    await office.tasks.cancel(office.tenant_id, PERSON, first.id)
    woken = await office.get(task)
    (run,) = await office.runs(task)
    assert (woken.parked_reason, woken.working_run_id) == (None, run["id"])
    # The message about the end is the invocation: there is no second one beside it.
    assert await office.tick() == 0
    await office.work()
    await office.pass_hour()
    assert await office.tick() == 1


@proves("work.parked")
async def test_a_task_that_gave_its_last_step_away_is_parked_when_its_run_ends(office: Office) -> None:
    task = await office.task("Sweep")
    await office.tick()
    subtask = await office.subtask(task, status="draft")
    await office.harness.settle(*office.harness.workers)
    await office.tick()
    assert (await office.get(task)).parked_reason == f"waits for subtask {subtask.id}"


@proves("work.progress")
async def test_a_task_that_nothing_moves_is_parked_with_a_notice(office: Office) -> None:
    task = await office.task("Sweep")
    for idle in (1, 2):
        assert await office.work() == 1
        assert (await office.get(task)).idle_invocations == idle
        await office.pass_hour()
    assert await office.work() == 1
    parked = await office.get(task)
    assert (parked.parked_reason, parked.work_at) == ("3 runs in a row changed nothing", None)
    assert await office.notices() == [
        f"Task {task.id} (Tidy up) is parked: 3 runs in a row changed nothing. Work stops until it is changed, "
        f"or started with `nova tasks run {task.id}`."
    ]
    await office.pass_hour()
    assert await office.work() == 0


@proves("work.progress")
async def test_what_moves_is_not_parked(office: Office) -> None:
    task = await office.task("Sweep", "Mop", "Dust", "Rest", "Go home")
    for step in task.steps[:4]:
        assert await office.tick() == 1
        (*_, run) = await office.runs(task)
        agent = TaskActor(OWNER, run["id"], run["thread_id"])
        await office.tasks.plans.update_step(office.tenant_id, agent, task.id, step.id, StepPatch(done=True))
        await office.harness.settle(*office.harness.workers)
        await office.scheduler.tick()
        assert (await office.get(task)).idle_invocations == 0
        await office.pass_hour()


@proves("work.progress")
@pytest.mark.parametrize(
    ("kind", "retryable", "idle"),
    [("rate_limit", True, 0), ("budget_exceeded", False, 0), ("auth_failure", False, 0), ("model_error", False, 1)],
)
async def test_a_failure_that_is_not_its_fault_says_nothing_about_a_task(
    office: Office, kind: str, retryable: bool, idle: int
) -> None:
    error = {"kind": kind, "message": "No", "retryable": retryable}
    await office.harness.add_agent(
        "ill", {"name": "Ill", "engine": "scripted", "engine_config": {"script": [{"error": error}]}}
    )
    task = await office.task("Sweep", owner="ill")
    await office.work()
    assert [run["status"] for run in await office.runs(task)] == ["failed"]
    assert (await office.get(task)).idle_invocations == idle


@proves("work.wake")
async def test_what_a_person_changes_is_worked_on_at_once_and_what_an_agent_changes_in_its_time(office: Office) -> None:
    task = await office.task("Sweep")
    for _ in range(3):
        await office.work()
        await office.pass_hour()
    assert (await office.get(task)).parked_reason is not None

    elsewhere = TaskActor(OWNER, "run_else", "thr_else")
    await office.tasks.update(office.tenant_id, elsewhere, task.id, TaskPatch(title="Tidy up well"))
    back = await office.get(task)
    assert (back.parked_reason, back.idle_invocations) == (None, 0)
    assert await office.tick() == 0
    await office.tasks.plans.update_step(
        office.tenant_id, PERSON, task.id, task.steps[0].id, StepPatch(details="Under the table too")
    )
    assert await office.tick() == 1


@proves("work.wake")
async def test_a_wake_up_while_a_run_is_in_flight_is_worked_after_it(office: Office) -> None:
    task = await office.task("Sweep")
    await office.tick()
    await office.tasks.update(office.tenant_id, PERSON, task.id, TaskPatch(title="Tidy up well"))
    assert await office.tick() == 0
    await office.harness.settle(*office.harness.workers)
    assert await office.tick() == 1


@proves("work.now")
async def test_run_now_works_at_any_hour_and_on_what_is_parked(office: Office) -> None:
    task = await office.task("Sweep")
    for _ in range(3):
        await office.work()
        await office.pass_hour()
    await office.close(office.tenant_id)
    run_id = await office.scheduler.run_now(office.tenant_id, task.id)
    # Asked again it is the same one, and so for two at once.
    again = await asyncio.gather(*(office.another().run_now(office.tenant_id, task.id) for _ in range(3)))
    assert set(again) == {run_id}
    assert [bell.run_id for bell in office.harness.bells.waiting] == [run_id]
    begun = await office.get(task)
    assert (begun.parked_reason, begun.idle_invocations, begun.working_run_id) == (None, 0, run_id)
    await office.work()
    assert (await office.get(task)).idle_invocations == 1


@proves("work.now")
async def test_run_now_is_refused_where_no_agent_would_work(office: Office) -> None:
    draft = await office.task("Sweep", status="draft")
    with pytest.raises(IllegalTransition, match=r"Task 1 is 'draft'; only an active task is worked on. Activate it"):
        await office.scheduler.run_now(office.tenant_id, draft.id)
    for tenant_id, number in ((office.tenant_id, 99), ("ten_else", draft.id)):
        with pytest.raises(NotFound, match="There is no task"):
            await office.scheduler.run_now(tenant_id, number)
    task = await office.task("Sweep")
    await _delete_owner(office)
    with pytest.raises(NotFound, match="'clerk', who owns task 2, was deleted"):
        await office.scheduler.run_now(office.tenant_id, task.id)


@proves("work.ended")
async def test_of_an_ended_task_nothing_goes_on(office: Office) -> None:
    task = await office.task("Sweep")
    child = await office.subtask(task)
    assert await office.tick() == 1
    (run,) = await office.runs(child)
    await office.tasks.cancel(office.tenant_id, PERSON, task.id)
    ended = await office.get(child)
    assert (ended.status, ended.work_at, ended.working_run_id, ended.parked_reason) == ("canceled", None, None, None)
    await office.work()
    assert await office.harness.status(run["id"]) == "canceled"
    assert office.harness.engine.model_calls == []


@proves("work.ended")
async def test_an_agent_that_ends_its_task_finishes_its_own_run(office: Office) -> None:
    task = await office.task("Sweep")
    await office.tick()
    (run,) = await office.runs(task)
    await office.tasks.complete(office.tenant_id, TaskActor(OWNER, run["id"], run["thread_id"]), task.id, "Clean.")
    await office.work()
    assert await office.harness.status(run["id"]) == "succeeded"
    assert await office.tick() == 0


@proves("work.ended")
async def test_a_new_owner_begins_at_once_and_the_old_one_stops(office: Office) -> None:
    task = await office.task("Sweep")
    await office.tick()
    (old,) = await office.runs(task)
    handing = TaskActor(OWNER, "run_else", "thr_else")
    await office.tasks.update(office.tenant_id, handing, task.id, TaskPatch(owner_agent_id="scripted"))
    assert await office.work() == 1
    (new,) = await office.runs(task)
    assert (await office.harness.status(old["id"]), new["agent_id"]) == ("canceled", "scripted")


async def test_a_task_of_a_deleted_agent_is_parked_until_it_has_another(office: Office) -> None:
    task = await office.task("Sweep")
    await _delete_owner(office)
    assert await office.tick() == 0
    assert (await office.get(task)).parked_reason == "Agent 'clerk', who owns task 1, was deleted."
    await office.tasks.update(office.tenant_id, PERSON, task.id, TaskPatch(owner_agent_id="scripted"))
    assert await office.tick() == 1


@pytest.mark.parametrize("scope", ["fleet", "tenant", "agent"])
async def test_what_is_paused_is_not_begun(office: Office, scope: Literal["fleet", "tenant", "agent"]) -> None:
    await office.task("Sweep")
    switch = Switch(scope, office.tenant_id, OWNER)
    async with office.harness.database.transaction() as connection:
        await pause(connection, switch, "maintenance")
    assert await office.tick() == 0
    async with office.harness.database.transaction() as connection:
        await resume(connection, switch)
    assert await office.tick() == 1


async def test_a_task_that_names_another_tenant_s_run_learns_nothing_of_it(office: Office) -> None:
    """As in an archive written by hand."""
    task = await office.task("Sweep")
    await office.tick()
    database = office.harness.database
    await database.execute("INSERT INTO tenants (id, name) VALUES ('ten_else', 'Else')")
    await database.execute("UPDATE runs SET tenant_id = 'ten_else'")
    await database.execute("UPDATE tasks SET idle_invocations = 2, work_at = now()")
    # To this tenant there is no such run: it is over, it did not count, and it is not told of.
    assert await office.tick() == 1
    assert (await office.get(task)).idle_invocations == 2
    assert await office.notices() == []


async def _delete_owner(office: Office) -> None:
    await office.harness.database.execute("UPDATE agents SET deleted_at = now() WHERE id = :agent_id", agent_id=OWNER)
