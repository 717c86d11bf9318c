"""Steps, subtasks and resources of a task."""

from __future__ import annotations

from nova_workers.base.errors import Conflict, Forbidden, IllegalTransition, LimitExceeded, NotFound
from nova_workers.contracts.http.tasks import (
    MAX_RESOURCES,
    MAX_STEPS,
    MAX_TASK_DEPTH,
    ResourceView,
    StepInput,
    StepPatch,
    StepsReplace,
    StepView,
    SubtaskCreate,
    TaskCreate,
    TaskResourceAdd,
    TaskView,
)
from nova_workers.domain.tasks.rules.change import TaskChange, change_tasks
from nova_workers.domain.tasks.rules.rules import (
    Plan,
    TaskActor,
    check_may_instruct,
    check_open,
    check_revision,
    make_plan,
)
from nova_workers.domain.tasks.sql import plan as ledger
from nova_workers.domain.tasks.sql import records as task_ledger
from nova_workers.ledger.work import Work


class TaskPlans:
    """Changes steps, subtasks and resources. Each method is one unit of work; most return the changed task."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def replace_steps(self, tenant_id: str, actor: TaskActor, task_id: int, given: StepsReplace) -> TaskView:
        """Replace a task's whole plan. An equal one changes nothing.

        Raises:
            NotFound, Forbidden: As `TaskChange.take`.
            Conflict: The task has changed since the revision that is given.
            InvalidInput, IllegalTransition: As `make_plan`; or the task has ended.
        """
        async with change_tasks(self._work, tenant_id, actor) as change:
            task = await _take_open(change, task_id)
            check_revision(task, given.revision)
            return await _apply(change, task, make_plan(task_id, task.steps, given.steps), "steps_replaced")

    async def update_step(
        self, tenant_id: str, actor: TaskActor, task_id: int, step_id: str, given: StepPatch
    ) -> TaskView:
        """Change one step. Equal values change nothing.

        Raises:
            NotFound: There is no such task, or it has no such step.
            Forbidden: The agent has no part in the task.
            IllegalTransition: The task has ended, or the step follows its subtask.
        """
        async with change_tasks(self._work, tenant_id, actor) as change:
            task = await _take_open(change, task_id)
            _find_step(task, step_id)
            steps = [_merged(step, given if step.id == step_id else StepPatch()) for step in task.steps]
            return await _apply(change, task, make_plan(task_id, task.steps, steps), "step_updated")

    async def create_subtask(
        self, tenant_id: str, actor: TaskActor, task_id: int, step_id: str, given: SubtaskCreate
    ) -> TaskView:
        """Create the subtask that does a step, and return it. Only the task's owner or a person may.

        Raises:
            NotFound: There is no such task, step or agent.
            Forbidden: The agent does not own the task.
            IllegalTransition: The task is not active, or the step is done or has a subtask.
            LimitExceeded: The tree has its maximum depth, or there are too many open tasks.
        """
        async with change_tasks(self._work, tenant_id, actor) as change:
            task = await change.take(task_id)
            step = _find_step(task, step_id)
            _check_delegable(actor, task, step)
            above = await task_ledger.list_ancestors(change.connection, tenant_id, task_id)
            if len(above) + 2 > MAX_TASK_DEPTH:
                raise LimitExceeded(
                    f"Task {task_id} stands {len(above)} tasks deep; a subtask of it would be deeper than "
                    f"{MAX_TASK_DEPTH} tasks. Do the step in task {task_id} itself."
                )
            new = TaskCreate(
                title=given.title or step.title,
                description=step.details if given.description is None else given.description,
                owner_agent_id=given.owner_agent_id or task.owner_agent_id,
                status=given.status,
                steps=given.steps,
            )
            subtask_id = await write_new(change, new, parent=(task_id, step_id))
            await ledger.link_step(change.connection, tenant_id, task_id, step_id, subtask_id)
            await change.record(task_id, "subtask_created", {"step_id": step_id, "subtask_id": subtask_id})
            return await change.read(subtask_id)

    async def add_resource(
        self, tenant_id: str, actor: TaskActor, task_id: int, given: TaskResourceAdd
    ) -> ResourceView:
        """Add a resource and return it.

        Raises:
            NotFound, Forbidden: As `TaskChange.take`.
            IllegalTransition: The task has ended.
            Conflict: The task has it already.
            LimitExceeded: The task has its maximum of resources.
        """
        async with change_tasks(self._work, tenant_id, actor) as change:
            task = await _take_open(change, task_id)
            known = {resource.value: resource.id for resource in task.resources}
            if given.value in known:
                raise Conflict(
                    f"Task {task_id} has {given.value!r} already, as resource {known[given.value]!r}.",
                    field="value",
                    resource_id=known[given.value],
                )
            if len(task.resources) >= MAX_RESOURCES:
                raise LimitExceeded(f"Task {task_id} has {MAX_RESOURCES} resources, which is the most. Remove some.")
            resource_id = await _write_resource(change, task_id, given)
            await change.record(task_id, "resource_added", {"resource": {"id": resource_id, **given.model_dump()}})
            found = await change.read(task_id)
            return next(resource for resource in found.resources if resource.id == resource_id)

    async def remove_resource(self, tenant_id: str, actor: TaskActor, task_id: int, resource_id: str) -> ResourceView:
        """Remove a resource, and return it.

        Raises:
            NotFound: There is no such task, or it has no such resource.
            Forbidden: The agent has no part in the task.
            IllegalTransition: The task has ended.
        """
        async with change_tasks(self._work, tenant_id, actor) as change:
            task = await _take_open(change, task_id)
            found = next((resource for resource in task.resources if resource.id == resource_id), None)
            if found is None:
                text = f"Task {task_id} has no resource {resource_id!r}."
                raise NotFound(text, kind="task_resource", id=resource_id, field="resource_id")
            await ledger.remove_resource(change.connection, tenant_id, task_id, resource_id)
            resource = found.model_dump(include={"id", "kind", "value", "title"})
            await change.record(task_id, "resource_removed", {"resource": resource})
            return found


async def write_new(change: TaskChange, given: TaskCreate, *, parent: tuple[int, str] | None = None) -> int:
    """Write a task with its first steps and resources, and return its number.

    Raises:
        NotFound: There is no such agent.
        Conflict: A resource comes twice.
        InvalidInput: A step of a new task has an id.
        LimitExceeded: There are too many open tasks.
        Forbidden: The agent may not give work to the owner.
    """
    await change.need_agent(given.owner_agent_id)
    check_may_instruct(change.actor, given.owner_agent_id)
    values = [resource.value for resource in given.resources]
    if len(set(values)) < len(values):
        twice = next(value for at, value in enumerate(values) if value in values[:at])
        raise Conflict(f"Resource {twice!r} is given twice.", field="resources")
    task_id = await task_ledger.insert_task(
        change.connection,
        change.tenant_id,
        title=given.title,
        description=given.description,
        owner_agent_id=given.owner_agent_id,
        created_by=change.actor.name,
        parent=parent,
    )
    plan = make_plan(task_id, (), given.steps)
    await ledger.write_steps(change.connection, change.tenant_id, task_id, plan.written)
    for resource in given.resources:
        await _write_resource(change, task_id, resource)
    if given.status == "active":
        await task_ledger.set_active(change.connection, change.tenant_id, task_id)
        await change.bind_thread(await change.read(task_id))
    details = given.model_dump(exclude={"steps"}) | {"steps": plan.details.get("added", [])}
    await change.record(task_id, "created", {name: value for name, value in details.items() if value})
    return task_id


async def _take_open(change: TaskChange, task_id: int) -> TaskView:
    """Return a task whose plan or resources may change: its owner works by them."""
    task = await change.take(task_id)
    check_open(task)
    check_may_instruct(change.actor, task.owner_agent_id)
    return task


async def _apply(change: TaskChange, task: TaskView, plan: Plan, kind: str) -> TaskView:
    if not plan.changes:
        return task
    if len(task.steps) - len(plan.dropped) + len(plan.details.get("added", ())) > MAX_STEPS:
        raise LimitExceeded(f"Task {task.id} would have more than {MAX_STEPS} steps.", field="steps")
    await ledger.drop_steps(change.connection, change.tenant_id, task.id, plan.dropped)
    await ledger.write_steps(change.connection, change.tenant_id, task.id, plan.written)
    await change.record(task.id, kind, plan.details)
    return await change.read(task.id)


async def _write_resource(change: TaskChange, task_id: int, given: TaskResourceAdd) -> str:
    return await ledger.add_resource(
        change.connection, change.tenant_id, task_id, kind=given.kind, value=given.value, title=given.title
    )


def _find_step(task: TaskView, step_id: str) -> StepView:
    step = next((step for step in task.steps if step.id == step_id), None)
    if step is None:
        raise NotFound(f"Task {task.id} has no step {step_id!r}.", kind="task_step", id=step_id, field="step_id")
    return step


def _merged(step: StepView, given: StepPatch) -> StepInput:
    # Constructed, not validated: stored values were checked when they were written.
    return StepInput.model_construct(
        id=step.id, title=given.title or step.title, details=given.details, done=given.done
    )


def _check_delegable(actor: TaskActor, task: TaskView, step: StepView) -> None:
    if actor.agent_id is not None and actor.agent_id != task.owner_agent_id:
        raise Forbidden(
            f"Only {task.owner_agent_id!r}, who owns task {task.id}, makes subtasks of it.", task_id=task.id
        )
    if task.status != "active":
        raise IllegalTransition(
            f"Task {task.id} is {task.status!r}; only an active task has subtasks.",
            task_id=task.id,
            from_status=task.status,
        )
    if step.subtask is not None:
        raise IllegalTransition(
            f"Step {step.id!r} of task {task.id} has subtask {step.subtask.id} ({step.subtask.status!r}) already.",
            task_id=task.id,
            subtask_id=step.subtask.id,
        )
    if step.done:
        raise IllegalTransition(f"Step {step.id!r} of task {task.id} is done already.", task_id=task.id)
