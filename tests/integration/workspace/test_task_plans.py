"""Steps and resources of tasks on real Postgres."""

import pytest

from nova_workers.base.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from nova_workers.contracts.http.tasks import (
    MAX_RESOURCES,
    MAX_STEPS,
    StepInput,
    StepPatch,
    StepsReplace,
    TaskPatch,
    TaskResourceAdd,
)
from nova_workers.domain.tasks.rules.service import Tasks
from tests.integration.workspace.task_data import TENANT, A, active_task, kinds_of, new_task
from tests.requirements import proves


@proves("tasks.steps")
async def test_steps_given_by_id_stay_the_same(tasks: Tasks) -> None:
    one, two, three = (await active_task(tasks, "one", "two", "three")).steps
    await tasks.plans.update_step(TENANT, A, 1, two.id, StepPatch(done=True, details="with care"))
    given = (StepInput(id=two.id, title="zwei"), StepInput(title="new"), StepInput(id=one.id, title="one", done=True))
    after = await tasks.plans.replace_steps(TENANT, A, 1, StepsReplace(steps=given))
    assert [(step.id, step.title, step.details, step.done) for step in after.steps] == [
        (two.id, "zwei", "with care", True),
        (after.steps[1].id, "new", "", False),
        (one.id, "one", "", True),
    ]
    assert after.steps[1].id not in {one.id, two.id, three.id}
    newest, *_ = await tasks.history(TENANT, 1, limit=1)
    assert newest.details == {
        "added": [{"id": after.steps[1].id, "position": 1, "title": "new", "details": "", "done": False}],
        "changed": [
            {"id": two.id, "position": 0, "title": {"from": "two", "to": "zwei"}},
            {"id": one.id, "position": 2, "done": {"from": False, "to": True}},
        ],
        "removed": [{"id": three.id, "title": "three", "details": "", "done": False}],
    }


async def test_equal_values_change_nothing(tasks: Tasks) -> None:
    task = await active_task(tasks, "one", "two")
    same = tuple(StepInput(id=step.id, title=step.title) for step in task.steps)
    assert await tasks.plans.replace_steps(TENANT, A, task.id, StepsReplace(steps=same)) == task
    assert (
        await tasks.plans.update_step(TENANT, A, task.id, task.steps[0].id, StepPatch(title="one", done=False)) == task
    )
    assert await tasks.update(TENANT, A, task.id, TaskPatch(title=task.title, owner_agent_id="a")) == task
    assert await kinds_of(tasks, task.id) == ["created"]


async def test_a_step_of_another_task_is_refused(tasks: Tasks) -> None:
    other = await active_task(tasks, "theirs")
    task = await active_task(tasks, "mine")
    foreign = StepInput(id=other.steps[0].id, title="mine now")
    with pytest.raises(InvalidInput, match=r"steps\.0\.id: task 2 has no step"):
        await tasks.plans.replace_steps(TENANT, A, task.id, StepsReplace(steps=(foreign,)))
    with pytest.raises(NotFound, match="has no step"):
        await tasks.plans.update_step(TENANT, A, task.id, other.steps[0].id, StepPatch(done=True))
    mine = task.steps[0]
    twice = (StepInput(id=mine.id, title="x"), StepInput(id=mine.id, title="y"))
    with pytest.raises(InvalidInput, match=r"steps\.1\.id: step .* is given twice"):
        await tasks.plans.replace_steps(TENANT, A, task.id, StepsReplace(steps=twice))
    with pytest.raises(InvalidInput, match=r"steps\.0\.id: task 3 has no step"):
        await tasks.create(TENANT, A, new_task(steps=[{"id": mine.id, "title": "x"}]))
    assert await tasks.get(TENANT, task.id) == task
    assert await tasks.get(TENANT, other.id) == other


# Resources


async def test_resources_are_added_once_and_removed(tasks: Tasks) -> None:
    task = await active_task(tasks)
    url = TaskResourceAdd(kind="url", value="https://example.org/a?b=c", title="The page")
    made = await tasks.plans.add_resource(TENANT, A, task.id, url)
    with pytest.raises(Conflict, match=f"as resource '{made.id}'"):
        await tasks.plans.add_resource(TENANT, A, task.id, url)
    other = await tasks.plans.add_resource(TENANT, A, task.id, TaskResourceAdd(kind="file", value="notes/a b.txt"))
    assert [resource.id for resource in (await tasks.get(TENANT, task.id)).resources] == [made.id, other.id]
    assert await tasks.plans.remove_resource(TENANT, A, task.id, made.id) == made
    with pytest.raises(NotFound, match="has no resource"):
        await tasks.plans.remove_resource(TENANT, A, task.id, made.id)
    with pytest.raises(Conflict, match="is given twice"):
        await tasks.create(TENANT, A, new_task(resources=[url.model_dump(), url.model_dump()]))
    assert await kinds_of(tasks, task.id) == ["created", "resource_added", "resource_added", "resource_removed"]


async def test_the_resources_and_steps_of_a_task_are_limited(tasks: Tasks) -> None:
    task = await tasks.create(
        TENANT,
        A,
        new_task(
            steps=[{"title": str(at)} for at in range(MAX_STEPS)],
            resources=[{"kind": "file", "value": str(at)} for at in range(MAX_RESOURCES)],
        ),
    )
    assert (len(task.steps), len(task.resources)) == (MAX_STEPS, MAX_RESOURCES)
    with pytest.raises(LimitExceeded, match="200 resources"):
        await tasks.plans.add_resource(TENANT, A, task.id, TaskResourceAdd(kind="file", value="one more"))
