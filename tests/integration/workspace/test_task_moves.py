"""Transitions of tasks on real Postgres, their numbers and their threads."""

import asyncio
from collections.abc import Sequence

import pytest

from nova_workers.base.errors import IllegalTransition, LimitExceeded, NotFound
from nova_workers.contracts.http.tasks import (
    MAX_OPEN_TASKS,
    MAX_TASK_ID,
    StepPatch,
    StepsReplace,
    SubtaskCreate,
    TaskPatch,
    TaskResourceAdd,
    TaskStatus,
)
from nova_workers.domain.tasks.rules.service import PERSON, Tasks
from nova_workers.ledger.database import Database
from tests.integration.workspace.task_data import (
    TENANT,
    A,
    active_task,
    new_task,
    task_with_status,
)
from tests.requirements import proves

STATES: Sequence[TaskStatus] = ("draft", "active", "done", "canceled")
LEGAL = {("draft", "active"), ("draft", "canceled"), ("active", "done"), ("active", "canceled")}


@proves("tasks.moves")
@pytest.mark.parametrize("to_status", STATES)
@pytest.mark.parametrize("from_status", STATES)
async def test_a_task_makes_only_legal_transitions(
    tasks: Tasks, from_status: TaskStatus, to_status: TaskStatus
) -> None:
    task_id = await task_with_status(tasks, from_status)
    before = await tasks.get(TENANT, task_id)
    if (from_status, to_status) in LEGAL:
        moved = await tasks.update(TENANT, PERSON, task_id, TaskPatch(status=to_status))
        assert moved.status == to_status == (await tasks.get(TENANT, task_id)).status
        assert (moved.ended_at is not None) == (to_status in {"done", "canceled"})
        return
    with pytest.raises(IllegalTransition, match=f"'{from_status}' to '{to_status}'"):
        await tasks.update(TENANT, PERSON, task_id, TaskPatch(status=to_status, title="Other"))
    assert await tasks.get(TENANT, task_id) == before


@proves("tasks.moves")
@pytest.mark.parametrize("status", ["done", "canceled"])
async def test_a_task_that_has_ended_does_not_change(tasks: Tasks, status: TaskStatus) -> None:
    created = await tasks.create(
        TENANT, A, new_task(status="active", steps=[{"title": "one"}], resources=[{"kind": "file", "value": "a.txt"}])
    )
    ended = await tasks.update(TENANT, A, created.id, TaskPatch(status=status))
    task_id, step_id, resource_id = ended.id, ended.steps[0].id, ended.resources[0].id
    for change in (
        tasks.update(TENANT, A, task_id, TaskPatch(title="Other")),
        tasks.plans.replace_steps(TENANT, A, task_id, StepsReplace(steps=())),
        tasks.plans.update_step(TENANT, A, task_id, step_id, StepPatch(done=True)),
        tasks.plans.create_subtask(TENANT, A, task_id, step_id, SubtaskCreate()),
        tasks.plans.add_resource(TENANT, A, task_id, TaskResourceAdd(kind="file", value="b.txt")),
        tasks.plans.remove_resource(TENANT, A, task_id, resource_id),
    ):
        with pytest.raises(IllegalTransition, match=f"Task {task_id} is '{status}'"):
            await change
    assert await tasks.get(TENANT, task_id) == ended


@proves("tasks.thread")
async def test_an_active_task_has_a_thread_of_its_own(tasks: Tasks, database: Database) -> None:
    draft = await tasks.create(TENANT, A, new_task("Find a flat"))
    assert draft.thread_id is None
    active = await tasks.activate(TENANT, A, draft.id)
    row = await database.fetchrow("SELECT * FROM threads WHERE id = :thread_id", thread_id=active.thread_id)
    assert row is not None
    assert (row["agent_id"], row["task_id"], row["title"], row["label"]) == ("a", draft.id, "Find a flat", "task-1")
    assert await database.fetchval("SELECT count(*) FROM threads") == 1


@proves("tasks.thread")
async def test_a_label_that_is_taken_does_not_stop_a_task(tasks: Tasks, database: Database) -> None:
    await database.execute(
        "INSERT INTO threads (id, tenant_id, agent_id, label) VALUES ('thr_1', :tenant_id, 'b', 'task-1')",
        tenant_id=TENANT,
    )
    task = await active_task(tasks)
    row = await database.fetchrow("SELECT * FROM threads WHERE id = :thread_id", thread_id=task.thread_id)
    assert row is not None
    assert (row["label"], row["task_id"]) == (None, task.id)


@proves("tasks.thread")
async def test_a_new_owner_gets_a_thread_of_its_own(tasks: Tasks, database: Database) -> None:
    before = await active_task(tasks)
    after = await tasks.update(TENANT, A, before.id, TaskPatch(owner_agent_id="b"))
    assert after.thread_id != before.thread_id
    rows = await database.fetch("SELECT id, agent_id, task_id, label FROM threads ORDER BY id")
    assert [tuple(row) for row in rows] == [
        (before.thread_id, "a", None, None),
        (after.thread_id, "b", before.id, "task-1"),
    ]


async def test_a_task_of_a_deleted_agent_cannot_be_activated(tasks: Tasks, database: Database) -> None:
    draft = await tasks.create(TENANT, A, new_task())
    await database.execute("UPDATE agents SET deleted_at = now() WHERE id = 'a'")
    with pytest.raises(NotFound, match=r"Agent 'a', who owns task 1, was deleted\. Give the task another owner"):
        await tasks.activate(TENANT, PERSON, draft.id)
    await tasks.update(TENANT, PERSON, draft.id, TaskPatch(owner_agent_id="b"))
    assert (await tasks.activate(TENANT, PERSON, draft.id)).thread_id is not None


# Numbers


@proves("tasks.numbers")
async def test_numbers_are_per_tenant_and_never_used_again(tasks: Tasks, database: Database) -> None:
    assert [(await tasks.create(TENANT, A, new_task())).id for _ in range(3)] == [1, 2, 3]
    assert (await tasks.create("ten_2", A, new_task())).id == 1
    await database.execute("DELETE FROM tasks WHERE tenant_id = :tenant_id", tenant_id=TENANT)
    with pytest.raises(NotFound):
        await tasks.create(TENANT, A, new_task(owner="nobody"))
    assert (await tasks.create(TENANT, A, new_task())).id >= 4


@proves("tasks.numbers")
async def test_concurrently_created_tasks_have_different_numbers(tasks: Tasks) -> None:
    made = await asyncio.gather(*(tasks.create(TENANT, A, new_task(str(at))) for at in range(12)))
    assert sorted(task.id for task in made) == list(range(1, 13))


async def test_the_last_number_is_the_last(tasks: Tasks, database: Database) -> None:
    await database.execute(
        "UPDATE tenants SET next_task_id = :next_task_id WHERE id = :tenant_id",
        next_task_id=MAX_TASK_ID - 1,
        tenant_id=TENANT,
    )
    assert (await tasks.create(TENANT, A, new_task())).id == MAX_TASK_ID - 1
    with pytest.raises(LimitExceeded, match="no more task numbers"):
        await tasks.create(TENANT, A, new_task())


async def test_the_open_tasks_of_a_tenant_are_limited(tasks: Tasks, database: Database) -> None:
    await database.execute(
        "INSERT INTO tasks (tenant_id, id, title, owner_agent_id, created_by) "
        "SELECT :tenant_id, 1000 + n, 'x', 'a', 'a' FROM generate_series(1, :many::int) n",
        tenant_id=TENANT,
        many=MAX_OPEN_TASKS,
    )
    with pytest.raises(LimitExceeded, match=f"{MAX_OPEN_TASKS} open tasks"):
        await tasks.create(TENANT, A, new_task())
    await tasks.cancel(TENANT, A, 1001)
    await tasks.create(TENANT, A, new_task())
    await tasks.create("ten_2", A, new_task())
