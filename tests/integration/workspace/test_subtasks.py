"""Subtasks on real Postgres: links to steps, wake-ups at their end, and cancellation of a tree."""

import asyncio

import pytest

from nova_workers.base.errors import Forbidden, IllegalTransition, LimitExceeded, NotFound
from nova_workers.contracts.http.tasks import (
    MAX_TASK_DEPTH,
    StepInput,
    StepPatch,
    StepsReplace,
    SubtaskCreate,
    TaskStatus,
    TaskView,
)
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.tasks.rules.service import TaskActor, Tasks
from nova_workers.ledger.database import Database
from tests.integration.workspace.task_data import (
    TENANT,
    A,
    B,
    RecordedDoorbells,
    active_task,
    kinds_of,
    new_task,
    subtask_of,
)
from tests.requirements import proves


@proves("tasks.linkage")
async def test_no_update_of_steps_touches_a_link_to_a_subtask(tasks: Tasks) -> None:
    parent = await active_task(tasks, "one", "two")
    child = await subtask_of(tasks, parent, owner="b")
    linked, other = parent.steps
    plans = tasks.plans
    with pytest.raises(IllegalTransition, match=f"has subtask {child.id} and cannot be dropped"):
        await plans.replace_steps(TENANT, A, 1, StepsReplace(steps=(StepInput(id=other.id, title="two"),)))
    with pytest.raises(IllegalTransition, match=f"is done by subtask {child.id}"):
        await plans.replace_steps(TENANT, A, 1, StepsReplace(steps=(StepInput(id=linked.id, title="one", done=True),)))
    with pytest.raises(IllegalTransition, match=f"is done by subtask {child.id}"):
        await plans.update_step(TENANT, A, 1, linked.id, StepPatch(done=True))
    kept = (StepInput(title="zero"), StepInput(id=linked.id, title="eins"))
    after = await plans.replace_steps(TENANT, A, 1, StepsReplace(steps=kept))
    assert after.steps[1].title == "eins"
    assert after.steps[1].subtask is not None
    assert after.steps[1].subtask.id == child.id
    await tasks.complete(TENANT, B, child.id)
    with pytest.raises(IllegalTransition, match=f"is done by subtask {child.id}"):
        await plans.update_step(TENANT, A, 1, linked.id, StepPatch(done=False))
    assert (await tasks.get(TENANT, 1)).steps[1].done


async def test_a_subtask_inherits_title_and_details_of_its_step(tasks: Tasks) -> None:
    parent = await tasks.create(
        TENANT, A, new_task(status="active", steps=[{"title": "Call them", "details": "Number 7"}, {"title": "Two"}])
    )
    child = await subtask_of(tasks, parent)
    assert (child.title, child.description, child.owner_agent_id, child.status) == (
        "Call them",
        "Number 7",
        "a",
        "active",
    )
    assert (child.parent_task_id, child.parent_step_id) == (parent.id, parent.steps[0].id)
    other = await subtask_of(tasks, parent, 1, "b", title="Own", description="", status="draft", steps=[{"title": "x"}])
    assert (other.title, other.description, other.owner_agent_id, other.status) == ("Own", "", "b", "draft")
    assert other.thread_id is None


async def test_a_step_has_one_subtask_and_only_of_an_active_task(tasks: Tasks) -> None:
    parent = await active_task(tasks, "one", "two")
    child = await subtask_of(tasks, parent)
    with pytest.raises(IllegalTransition, match=f"has subtask {child.id} "):
        await subtask_of(tasks, parent)
    await tasks.plans.update_step(TENANT, A, parent.id, parent.steps[1].id, StepPatch(done=True))
    with pytest.raises(IllegalTransition, match="is done already"):
        await subtask_of(tasks, parent, 1)
    draft = await tasks.create(TENANT, A, new_task(steps=[{"title": "one"}]))
    with pytest.raises(IllegalTransition, match="only an active task has subtasks"):
        await subtask_of(tasks, draft)
    with pytest.raises(NotFound, match="There is no agent 'nobody'"):
        await subtask_of(tasks, await active_task(tasks, "one"), owner="nobody")


@proves("tasks.subtask-owner")
async def test_only_the_owner_agent_creates_subtasks(tasks: Tasks) -> None:
    parent = await tasks.create(TENANT, B, new_task(status="active", steps=[{"title": "one"}]))
    with pytest.raises(Forbidden, match="Only 'a', who owns task 1"):
        await tasks.plans.create_subtask(TENANT, B, parent.id, parent.steps[0].id, SubtaskCreate())
    child = await tasks.plans.create_subtask(
        TENANT, A, parent.id, parent.steps[0].id, SubtaskCreate(owner_agent_id="b")
    )
    assert (child.owner_agent_id, child.created_by) == ("b", "a")


async def test_concurrent_delegations_of_a_step_create_one_subtask(tasks: Tasks) -> None:
    parent = await active_task(tasks, "one")
    made = await asyncio.gather(*(subtask_of(tasks, parent) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(one, TaskView) for one in made) == 1
    assert sum(isinstance(one, IllegalTransition) for one in made) == 4


async def test_the_depth_of_a_tree_is_limited(tasks: Tasks) -> None:
    task = await active_task(tasks, "one")
    for _ in range(MAX_TASK_DEPTH - 1):
        task = await subtask_of(tasks, task, steps=[{"title": "one"}])
    with pytest.raises(LimitExceeded, match="deeper than 8 tasks"):
        await subtask_of(tasks, task)


@proves("tasks.wake")
@pytest.mark.parametrize("status", ["done", "canceled"])
async def test_the_end_of_a_subtask_marks_its_step_and_wakes_the_owner_above(
    tasks: Tasks, database: Database, bells: RecordedDoorbells, status: TaskStatus
) -> None:
    parent = await active_task(tasks, "one")
    child = await subtask_of(tasks, parent, owner="b")
    end = tasks.complete if status == "done" else tasks.cancel
    await end(TENANT, B, child.id, "All clean.")
    after = await tasks.get(TENANT, parent.id)
    assert [(step.done, step.subtask is not None) for step in after.steps] == [(status == "done",) * 2]
    run = await database.fetchrow("SELECT * FROM runs")
    assert run is not None
    assert (run["thread_id"], run["agent_id"], run["queue"], run["source"], run["status"]) == (
        parent.thread_id,
        "a",
        "background",
        "task",
        "queued",
    )
    words = run["content"][0]["text"]
    assert words.startswith(f"Subtask {child.id} ('one'), for the step 'one', of task 1 ('Tidy up') ")
    assert "All clean." in words
    assert run["meta"]["subtask_id"] == child.id
    assert bells.rung == [Doorbell(run["id"], parent.thread_id or "", "background")]
    assert (await kinds_of(tasks, parent.id))[-1] == ("subtask_completed" if status == "done" else "subtask_canceled")


@proves("tasks.wake")
async def test_the_wake_and_the_end_of_a_subtask_are_one_transaction(
    tasks: Tasks, database: Database, bells: RecordedDoorbells
) -> None:
    parent = await active_task(tasks, "one")
    child = await subtask_of(tasks, parent)
    # The last statement of the transaction fails.
    await database.execute("ALTER TABLE runs ADD CONSTRAINT no_runs CHECK (source <> 'task') NOT VALID")
    with pytest.raises(Exception, match="no_runs"):
        await tasks.complete(TENANT, A, child.id)
    assert (await tasks.get(TENANT, child.id)).status == "active"
    assert not (await tasks.get(TENANT, parent.id)).steps[0].done
    assert bells.rung == []


async def test_an_owner_in_a_run_on_the_task_s_thread_is_not_woken(tasks: Tasks, bells: RecordedDoorbells) -> None:
    parent = await active_task(tasks, "one", "two")
    here = TaskActor("a", "run_1", parent.thread_id)
    await tasks.complete(TENANT, here, (await subtask_of(tasks, parent)).id)
    assert bells.rung == []
    await tasks.complete(TENANT, A, (await subtask_of(tasks, parent, 1)).id)
    assert len(bells.rung) == 1


async def test_a_deleted_thread_is_created_again_when_its_owner_is_woken(
    tasks: Tasks, database: Database, bells: RecordedDoorbells
) -> None:
    parent = await active_task(tasks, "one", "two")
    children = [await subtask_of(tasks, parent, at, owner="b") for at in (0, 1)]
    await database.execute("UPDATE threads SET deleted_at = now() WHERE id = :thread_id", thread_id=parent.thread_id)
    await tasks.complete(TENANT, B, children[0].id)
    thread_id = (await tasks.get(TENANT, parent.id)).thread_id
    assert thread_id != parent.thread_id
    assert [bell.thread_id for bell in bells.rung] == [thread_id]
    await database.execute("UPDATE agents SET deleted_at = now() WHERE id = 'a'")
    await tasks.complete(TENANT, B, children[1].id)
    assert len(bells.rung) == 1


@proves("tasks.cascade")
async def test_canceling_a_task_cancels_its_subtasks_and_frees_the_steps(tasks: Tasks, database: Database) -> None:
    root = await active_task(tasks, "one", "two", "three")
    first = await subtask_of(tasks, root, 0, steps=[{"title": "deeper"}])
    deep = await subtask_of(tasks, first, owner="b")
    draft = await subtask_of(tasks, root, 1, status="draft")
    done = await subtask_of(tasks, root, 2)
    await tasks.complete(TENANT, A, done.id)
    await tasks.cancel(TENANT, A, root.id, "Not wanted")
    stand = {task.id: task.status for task in await tasks.list(TENANT, limit=10)}
    assert stand == {
        root.id: "canceled",
        first.id: "canceled",
        deep.id: "canceled",
        draft.id: "canceled",
        done.id: "done",
    }
    change, *_ = await tasks.history(TENANT, deep.id, limit=1)
    assert (change.kind, change.actor, change.run_id, change.details) == (
        "canceled",
        "a",
        "run_a",
        {"canceled_with": root.id},
    )
    assert await database.fetchval("SELECT count(*) FROM task_steps WHERE subtask_id IS NOT NULL") == 1
    # No owner above gets a message, except for the subtask that ended before.
    assert await database.fetchval("SELECT count(*) FROM runs") == 1


async def test_a_step_whose_subtask_was_canceled_is_free_again(tasks: Tasks) -> None:
    parent = await active_task(tasks, "one")
    first = await subtask_of(tasks, parent)
    await tasks.cancel(TENANT, A, first.id)
    second = await subtask_of(tasks, await tasks.get(TENANT, parent.id), owner="b")
    await tasks.cancel(TENANT, A, second.id)
    done = await tasks.plans.update_step(TENANT, A, parent.id, parent.steps[0].id, StepPatch(done=True))
    assert done.steps[0].done
    assert [task.id for task in await tasks.list(TENANT, parent_task_id=parent.id, limit=10)] == [second.id, first.id]


@proves("tasks.complete")
async def test_a_task_with_open_subtasks_cannot_be_completed(tasks: Tasks) -> None:
    parent = await active_task(tasks, "one", "two")
    first, second = await subtask_of(tasks, parent), await subtask_of(tasks, parent, 1, status="draft")
    with pytest.raises(IllegalTransition, match=rf"'active' to 'done' while .* open: {first.id}, {second.id}\."):
        await tasks.complete(TENANT, A, parent.id)
    await tasks.complete(TENANT, A, first.id)
    await tasks.cancel(TENANT, A, second.id)
    assert (await tasks.complete(TENANT, A, parent.id, "Fine")).outcome == "Fine"
