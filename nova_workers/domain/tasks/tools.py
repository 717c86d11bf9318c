"""The `tasks` capability: structured work, with a plan, that agents own, share out and finish."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.http.tasks import (
    StepId,
    StepPatch,
    StepsReplace,
    SubtaskCreate,
    TaskChangeView,
    TaskCreate,
    TaskEnd,
    TaskNumber,
    TaskPatch,
    TaskResourceAdd,
    TaskStatus,
    TaskSummary,
    TaskView,
)
from nova_workers.domain.capabilities.rules.delegation import may_instruct
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.tasks.rules.service import TaskActor, Tasks, describe_task

_MAX_LISTED = 100

_TaskId = Annotated[TaskNumber, Field(description="The task's number.")]
_StepOf = Annotated[StepId, Field(description="The step's id, as task_get shows it in brackets.")]
_MineByDefault = Annotated[
    AgentId | None, Field(description="The agent that works on it, one that you may ask. Left out: you.")
]


class _Create(ToolInput, TaskCreate):
    owner_agent_id: _MineByDefault = None  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride] - made whole before it is used


class _One(ToolInput):
    task_id: _TaskId


class _Update(_One, TaskPatch):
    pass


class _End(_One, TaskEnd):
    pass


class _List(ToolInput):
    status: TaskStatus | None = None
    owner_agent_id: Annotated[AgentId | None, Field(description="Only of this agent.")] = None
    parent_task_id: Annotated[TaskNumber | None, Field(description="Only subtasks of this task.")] = None
    limit: Annotated[int, Field(ge=1, le=_MAX_LISTED, description="Most tasks to return.")] = 20
    before: Annotated[TaskNumber | None, Field(description="Only with lower numbers than this; to see more.")] = None


class _History(_One):
    limit: Annotated[int, Field(ge=1, le=_MAX_LISTED, description="Most changes to return.")] = 20
    before: Annotated[TaskNumber | None, Field(description="Only changes before this one; to see more.")] = None


class _UpdateSteps(_One, StepsReplace):
    pass


class _UpdateStep(_One, StepPatch):
    step_id: _StepOf


class _CreateSubtask(_One, SubtaskCreate):
    step_id: _StepOf


class _AddResource(_One, TaskResourceAdd):
    pass


class _RemoveResource(_One):
    resource_id: Annotated[
        str,
        StringConstraints(pattern=r"^tre_[0-9A-Z]{26}$"),
        Field(description="The resource's id, as task_get shows it in brackets."),
    ]


class _TaskTools:
    """Every agent with the capability sees all tasks; it changes those that it has a part in."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (*self._declare_tasks(), *self._declare_parts())

    def _declare_tasks(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="task_create",
                description=(
                    "Make a task: work with a goal and a plan of steps, that outlives this conversation. An active "
                    "task has a conversation of its own with its owner."
                ),
                input=_Create,
                run=self._create,
                atomic=True,
            ),
            ToolDeclaration(
                name="task_get",
                description="Look at a task: its description, its steps and resources with their ids, its revision.",
                input=_One,
                run=self._get,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="task_update",
                description="Change a task's title, description or owner, or activate a draft.",
                input=_Update,
                run=self._update,
                atomic=True,
            ),
            ToolDeclaration(
                name="task_complete",
                description="End an active task whose goal is reached. It must have no open subtasks.",
                input=_End,
                run=self._complete,
                atomic=True,
            ),
            ToolDeclaration(
                name="task_cancel",
                description="End a task that is not to be reached, with all its open subtasks.",
                input=_End,
                run=self._cancel,
                atomic=True,
            ),
            ToolDeclaration(
                name="task_list",
                description="List tasks, newest first.",
                input=_List,
                run=self._list,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="task_history",
                description="See what happened to a task, newest first.",
                input=_History,
                run=self._history,
                idempotent=True,
                read_only=True,
            ),
        )

    def _declare_parts(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="task_update_steps",
                description=(
                    "Replace the whole plan of a task. Give a step that stays with its id; a step without an id is "
                    "new; a step that is left out goes. A step with a subtask can neither go nor be marked."
                ),
                input=_UpdateSteps,
                run=self._update_steps,
                atomic=True,
            ),
            ToolDeclaration(
                name="task_update_step",
                description="Mark one step of a task as done or not, or change its words.",
                input=_UpdateStep,
                run=self._update_step,
                idempotent=True,
            ),
            ToolDeclaration(
                name="task_create_subtask",
                description=(
                    "Give a step of an active task of yours to a task of its own, for you or for another agent. When "
                    "it ends, you get a message in the task's conversation."
                ),
                input=_CreateSubtask,
                run=self._create_subtask,
                atomic=True,
            ),
            ToolDeclaration(
                name="task_add_resource",
                description="Add an address or a path that a task works with.",
                input=_AddResource,
                run=self._add_resource,
                atomic=True,
            ),
            ToolDeclaration(
                name="task_remove_resource",
                description="Remove a resource from a task.",
                input=_RemoveResource,
                run=self._remove_resource,
                atomic=True,
            ),
        )

    async def _create(self, context: CapabilityContext, given: _Create) -> str:
        whole = given.model_copy(update={"owner_agent_id": given.owner_agent_id or context.agent_id})
        task = await self._tasks.create(context.tenant_id, _actor(context), whole)
        return f"Made task {task.id}.\n\n{_show(task)}"

    async def _get(self, context: CapabilityContext, given: _One) -> str:
        return _show(await self._tasks.get(context.tenant_id, given.task_id))

    async def _update(self, context: CapabilityContext, given: _Update) -> str:
        return _show(await self._tasks.update(context.tenant_id, _actor(context), given.task_id, given))

    async def _complete(self, context: CapabilityContext, given: _End) -> str:
        task = await self._tasks.complete(context.tenant_id, _actor(context), given.task_id, given.outcome)
        undone = sum(not step.done for step in task.steps)
        left = f" {undone} of its {len(task.steps)} steps were not done." if undone else ""
        return f"Task {task.id} is done.{left}"

    async def _cancel(self, context: CapabilityContext, given: _End) -> str:
        task = await self._tasks.cancel(context.tenant_id, _actor(context), given.task_id, given.outcome)
        return f"Task {task.id} is canceled, and so is what was open below it."

    async def _list(self, context: CapabilityContext, given: _List) -> str:
        found = await self._tasks.list(
            context.tenant_id,
            status=given.status,
            owner_agent_id=given.owner_agent_id,
            parent_task_id=given.parent_task_id,
            before=given.before,
            limit=given.limit,
        )
        lines = [_line(task) for task in found]
        if len(found) == given.limit:
            lines.append(f"There may be more: ask with before={found[-1].id}.")
        return "\n".join(lines) or "There are no such tasks."

    async def _history(self, context: CapabilityContext, given: _History) -> str:
        found = await self._tasks.history(context.tenant_id, given.task_id, before=given.before, limit=given.limit)
        lines = [_change(change) for change in found]
        if len(found) == given.limit:
            lines.append(f"There may be more: ask with before={found[-1].revision}.")
        return "\n".join(lines) or "There is nothing before that."

    async def _update_steps(self, context: CapabilityContext, given: _UpdateSteps) -> str:
        return _show(await self._tasks.plans.replace_steps(context.tenant_id, _actor(context), given.task_id, given))

    async def _update_step(self, context: CapabilityContext, given: _UpdateStep) -> str:
        task = await self._tasks.plans.update_step(
            context.tenant_id, _actor(context), given.task_id, given.step_id, given
        )
        done = sum(step.done for step in task.steps)
        return f"{done} of the {len(task.steps)} steps of task {task.id} are done."

    async def _create_subtask(self, context: CapabilityContext, given: _CreateSubtask) -> str:
        task = await self._tasks.plans.create_subtask(
            context.tenant_id, _actor(context), given.task_id, given.step_id, given
        )
        return f"Made subtask {task.id}.\n\n{_show(task)}"

    async def _add_resource(self, context: CapabilityContext, given: _AddResource) -> str:
        made = await self._tasks.plans.add_resource(context.tenant_id, _actor(context), given.task_id, given)
        return f"Added resource {made.id} to task {given.task_id}."

    async def _remove_resource(self, context: CapabilityContext, given: _RemoveResource) -> str:
        gone = await self._tasks.plans.remove_resource(
            context.tenant_id, _actor(context), given.task_id, given.resource_id
        )
        return f"Removed {gone.kind} {gone.value!r} from task {given.task_id}."


def _actor(context: CapabilityContext) -> TaskActor:
    return TaskActor(context.agent_id, context.run_id, context.thread_id, may_instruct(context))


def _show(task: TaskView) -> str:
    return f"{describe_task(task)}\nRevision: {task.revision}"


def _line(task: TaskSummary) -> str:
    below = "" if task.parent_task_id is None else f", subtask of {task.parent_task_id}"
    steps = f", {task.steps_done} of {task.steps_total} steps done" if task.steps_total else ""
    return f"{task.id} ({task.status}, owner {task.owner_agent_id}{below}{steps}): {task.title}"


def _change(change: TaskChangeView) -> str:
    words = ", ".join(f"{name}: {value}" for name, value in change.details.items())
    when = f"{change.created_at:%Y-%m-%d %H:%M}"
    return f"{change.revision}. {when} {change.kind} by {change.actor}{f' ({words})' if words else ''}"


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    return ToolCapability(
        "tasks",
        "Work with a goal and a plan of steps, which agents own, share out and finish.",
        _TaskTools(Tasks(parts.work)).declare(),
    )
