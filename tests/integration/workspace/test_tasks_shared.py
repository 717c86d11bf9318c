"""Shared tasks on real Postgres: permissions, concurrent updates and messages."""

import asyncio
from typing import Any

import pytest

from nova_workers.base.errors import Conflict, Forbidden, IllegalTransition, InvalidInput, NotFound
from nova_workers.contracts.http.tasks import (
    StepInput,
    StepPatch,
    StepsReplace,
    SubtaskCreate,
    TaskPatch,
    TaskResourceAdd,
    TaskView,
)
from nova_workers.domain.tasks.rules.service import PERSON, TaskActor, Tasks, task_section
from nova_workers.ledger.database import Database
from tests.integration.workspace.task_data import (
    TENANT,
    A,
    B,
    RecordedDoorbells,
    active_task,
    new_task,
    subtask_of,
)
from tests.requirements import proves


@proves("tasks.parts")
async def test_an_agent_changes_tasks_that_it_owns_created_or_is_above(tasks: Tasks, database: Database) -> None:
    await database.execute(
        "INSERT INTO agents (tenant_id, id, version, spec) VALUES ('ten_1', 'c', 1, '{\"name\": \"c\"}')"
    )
    stranger = TaskActor("c", "run_c", "thr_c")
    parent = await tasks.create(TENANT, B, new_task(status="active", steps=[{"title": "one"}]))
    child = await tasks.plans.create_subtask(
        TENANT, A, parent.id, parent.steps[0].id, SubtaskCreate.model_validate({"owner_agent_id": "c"})
    )
    with pytest.raises(Forbidden, match="Task 1 belongs to agent 'a'"):
        await tasks.update(TENANT, stranger, parent.id, TaskPatch(title="Mine"))
    await tasks.update(TENANT, B, parent.id, TaskPatch(title="Made by b"))
    await tasks.update(TENANT, A, child.id, TaskPatch(title="Below a"))
    await tasks.update(TENANT, stranger, child.id, TaskPatch(title="Owned by c"))
    with pytest.raises(Forbidden):
        await tasks.update(TENANT, B, child.id, TaskPatch(title="Not b's"))
    with pytest.raises(Forbidden):
        await tasks.complete(TENANT, B, child.id)
    await tasks.cancel(TENANT, A, child.id)


async def test_an_agent_called_person_has_no_rights_of_people(tasks: Tasks) -> None:
    task = await tasks.create(TENANT, PERSON, new_task())
    with pytest.raises(Forbidden):
        await tasks.update(TENANT, TaskActor("person"), task.id, TaskPatch(title="Mine"))


@proves("tasks.tenants")
async def test_another_tenant_s_task_is_not_found(tasks: Tasks) -> None:
    parent = await active_task(tasks, "one")
    child = await subtask_of(tasks, parent)
    step_id = parent.steps[0].id
    for actor in (PERSON, A):
        for change in (
            tasks.get("ten_2", parent.id),
            tasks.history("ten_2", parent.id, limit=5),
            tasks.update("ten_2", actor, parent.id, TaskPatch(title="x")),
            tasks.cancel("ten_2", actor, child.id),
            tasks.plans.update_step("ten_2", actor, parent.id, step_id, StepPatch(title="x")),
            tasks.plans.create_subtask("ten_2", actor, parent.id, step_id, SubtaskCreate()),
            tasks.plans.add_resource("ten_2", actor, parent.id, TaskResourceAdd(kind="file", value="x")),
        ):
            with pytest.raises(NotFound, match="There is no task"):
                await change
    assert await tasks.list("ten_2", limit=5) == []
    theirs = await tasks.create("ten_2", PERSON, new_task(status="active", steps=[{"title": "x"}]))
    stolen = StepsReplace(steps=(StepInput(id=step_id, title="x"),))
    with pytest.raises(InvalidInput, match="has no step"):
        await tasks.plans.replace_steps("ten_2", PERSON, theirs.id, stolen)
    assert (await tasks.get(TENANT, parent.id)).steps[0].title == "one"


# Nothing is lost


@proves("tasks.no-lost-update")
async def test_concurrent_changes_of_a_task_are_all_kept(tasks: Tasks) -> None:
    task = await active_task(tasks, *(str(at) for at in range(10)))
    await asyncio.gather(
        *(tasks.plans.update_step(TENANT, A, task.id, step.id, StepPatch(done=True)) for step in task.steps),
        *(
            tasks.plans.add_resource(TENANT, A, task.id, TaskResourceAdd(kind="file", value=str(at)))
            for at in range(10)
        ),
        tasks.update(TENANT, A, task.id, TaskPatch(title="New title")),
        tasks.update(TENANT, A, task.id, TaskPatch(description="New description")),
    )
    after = await tasks.get(TENANT, task.id)
    assert all(step.done for step in after.steps)
    assert len(after.resources) == 10
    assert (after.title, after.description) == ("New title", "New description")
    assert after.revision == 23
    changes = await tasks.history(TENANT, task.id, limit=100)
    assert [change.revision for change in changes] == list(range(23, 0, -1))


@proves("tasks.no-lost-update")
async def test_a_change_from_an_old_view_is_refused(tasks: Tasks) -> None:
    task = await active_task(tasks, "one")
    seen = task.revision
    replaced = StepsReplace(steps=(StepInput(title="mine"),), revision=seen)
    outcomes = await asyncio.gather(
        *(tasks.plans.replace_steps(TENANT, A, task.id, replaced) for _ in range(4)), return_exceptions=True
    )
    assert sum(isinstance(one, TaskView) for one in outcomes) == 1
    assert sum(isinstance(one, Conflict) for one in outcomes) == 3
    with pytest.raises(Conflict, match=r"is at revision 2, and the change was made from revision 1\. Read it again"):
        await tasks.update(TENANT, A, task.id, TaskPatch(title="x", revision=seen))


async def test_one_of_two_concurrent_ends_of_a_task_wins(tasks: Tasks, bells: RecordedDoorbells) -> None:
    parent = await active_task(tasks, "one")
    child = await subtask_of(tasks, parent)
    ends = await asyncio.gather(
        *(tasks.complete(TENANT, A, child.id) for _ in range(3)),
        *(tasks.cancel(TENANT, A, child.id) for _ in range(3)),
        return_exceptions=True,
    )
    assert sum(isinstance(one, TaskView) for one in ends) == 1
    assert sum(isinstance(one, IllegalTransition) for one in ends) == 5
    assert len(bells.rung) == 1


async def test_concurrent_changes_of_a_tree_do_not_deadlock(tasks: Tasks) -> None:
    root = await active_task(tasks, *(str(at) for at in range(6)))
    children = [await subtask_of(tasks, root, at, steps=[{"title": "x"}]) for at in range(6)]
    grand = [await subtask_of(tasks, child) for child in children]
    async with asyncio.timeout(60):
        ends = await asyncio.gather(
            *(tasks.complete(TENANT, A, task.id) for task in grand),
            *(tasks.cancel(TENANT, A, task.id) for task in children[:3]),
            *(tasks.update(TENANT, A, root.id, TaskPatch(title=str(at))) for at in range(3)),
            tasks.cancel(TENANT, A, root.id),
            return_exceptions=True,
        )
    assert all(isinstance(end, TaskView | IllegalTransition) for end in ends), ends
    assert {task.status for task in await tasks.list(TENANT, limit=20)} <= {"done", "canceled"}


# Reading


async def test_the_history_has_changes_and_their_authors(tasks: Tasks) -> None:
    task = await tasks.create(TENANT, A, new_task("First", description="d"))
    await tasks.update(TENANT, PERSON, task.id, TaskPatch(title="Second", status="active"))
    await tasks.complete(TENANT, A, task.id, "Good")
    changes = await tasks.history(TENANT, task.id, limit=10)
    thread_id = (await tasks.get(TENANT, task.id)).thread_id
    assert [(c.revision, c.kind, c.actor, c.run_id, c.details) for c in changes] == [
        (4, "completed", "a", "run_a", {"outcome": "Good"}),
        (3, "activated", "person", None, {"thread_id": thread_id}),
        (2, "updated", "person", None, {"title": {"from": "First", "to": "Second"}}),
        (1, "created", "a", "run_a", {"title": "First", "description": "d", "owner_agent_id": "a", "status": "draft"}),
    ]
    assert [change.revision for change in await tasks.history(TENANT, task.id, before=3, limit=1)] == [2]


async def test_tasks_are_listed_newest_first_by_any_filter(tasks: Tasks) -> None:
    parent = await active_task(tasks, "one", "two")
    child = await subtask_of(tasks, parent, owner="b")
    draft = await tasks.create(TENANT, B, new_task(owner="b"))

    async def ids(limit: int = 10, **filters: Any) -> list[int]:
        return [task.id for task in await tasks.list(TENANT, limit=limit, **filters)]

    assert await ids() == [draft.id, child.id, parent.id]
    assert await ids(limit=1) == [draft.id]
    assert await ids(before=draft.id) == [child.id, parent.id]
    assert await ids(status="active") == [child.id, parent.id]
    assert await ids(owner_agent_id="b") == [draft.id, child.id]
    assert await ids(owner_agent_id="b", status="active") == [child.id]
    assert await ids(parent_task_id=parent.id, owner_agent_id="b", status="active", before=9) == [child.id]
    await tasks.complete(TENANT, B, child.id)
    *_, listed = await tasks.list(TENANT, limit=10)
    assert (listed.steps_done, listed.steps_total) == (1, 2)


@proves("tasks.section")
async def test_the_prompt_describes_a_task(tasks: Tasks, database: Database) -> None:
    parent = await tasks.create(
        TENANT,
        A,
        new_task(
            "Find a flat",
            status="active",
            description="In the north.\nNot too loud.",
            steps=[{"title": "Look", "details": "x" * 301}, {"title": "Visit"}, {"title": "Sign", "details": "d"}],
            resources=[{"kind": "url", "value": "https://example.org", "title": "Offers"}],
        ),
    )
    child = await subtask_of(tasks, parent, 1, "b")
    await tasks.plans.update_step(TENANT, A, parent.id, parent.steps[2].id, StepPatch(done=True))
    async with database.connection() as connection:
        section = await task_section(connection, TENANT, parent.id)
        assert await task_section(connection, TENANT, 99) == ""
        assert await task_section(connection, "ten_2", parent.id) == ""
    look, visit, sign = (step.id for step in parent.steps)
    assert section == (
        "Task 1: Find a flat\n"
        "Status: active\n"
        "Owner: a\n"
        "Description:\n"
        "  In the north.\n"
        "  Not too loud.\n"
        "Steps (1 of 3 done):\n"
        f"- [ ] Look [{look}]\n"
        f"  {'x' * 300}… (task_get shows all)\n"
        f"- [ ] Visit [{visit}]\n"
        f"  Subtask {child.id}: Visit (active, owner b)\n"
        f"- [x] Sign [{sign}]\n"
        "Resources:\n"
        f"- url https://example.org (Offers) [{parent.resources[0].id}]"
    )
    async with database.connection() as connection:
        below = await task_section(connection, TENANT, child.id)
    assert f"Subtask of task 1, for its step {visit}" in below
