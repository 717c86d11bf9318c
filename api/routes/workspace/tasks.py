"""``/v1/tasks``: structured work that agents own."""

from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.tasks import (
    ResourceView,
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
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.tasks.rules.service import PERSON

from ...auth import WorkspaceCaller, WorkspaceReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdQuery, ResourceIdPath, StepIdPath, TaskIdPath
from ...repeats import RepeatableRequest
from ...state import State

router = APIRouter(prefix="/v1/tasks", tags=["tasks"], route_class=StrictRoute)

StatusQuery = Annotated[TaskStatus | None, Query(description="Only those that stand so.")]
ParentQuery = Annotated[TaskNumber | None, Query(description="Only subtasks of this task.")]


@router.post("", status_code=201, responses=problems(404, 409, 410, body=True))
async def create_task(body: TaskCreate, caller: WorkspaceCaller, state: State, repeats: RepeatableRequest) -> TaskView:
    """Create a task."""
    key = repeats.bound_to(body)
    return await repeats.once("the task", lambda: state.services.tasks.create_once(caller.tenant_id, PERSON, body, key))


@router.get("", responses=problems(400, 410, 422))
async def list_tasks(
    *,
    caller: WorkspaceReader,
    state: State,
    status: StatusQuery = None,
    owner_agent_id: AgentIdQuery = None,
    parent_task_id: ParentQuery = None,
    paging: PageQuery,
) -> Page[TaskSummary]:
    """List tasks, newest first."""
    listing = paging.of(caller.tenant_id, "tasks", int, status, owner_agent_id, parent_task_id)
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, owner_agent_id)
    rows = await state.services.tasks.list(
        caller.tenant_id,
        status=status,
        owner_agent_id=owner_agent_id,
        parent_task_id=parent_task_id,
        before=listing.key,
        limit=listing.rows,
    )
    return listing.page(rows, lambda task: task.id)


@router.get("/{task_id}", responses=problems(404))
async def get_task(task_id: TaskIdPath, caller: WorkspaceReader, state: State) -> TaskView:
    """Get a task with its steps and resources."""
    return await state.services.tasks.get(caller.tenant_id, task_id)


@router.patch("/{task_id}", responses=problems(404, 409, 410, body=True))
async def update_task(task_id: TaskIdPath, body: TaskPatch, caller: WorkspaceCaller, state: State) -> TaskView:
    """Change the given fields, and the status if one is given."""
    return await state.services.tasks.update(caller.tenant_id, PERSON, task_id, body)


@router.post("/{task_id}/activate", responses=problems(404, 409))
async def activate_task(task_id: TaskIdPath, caller: WorkspaceCaller, state: State) -> TaskView:
    """Activate a draft. It gets a thread of its own."""
    return await state.services.tasks.activate(caller.tenant_id, PERSON, task_id)


@router.post("/{task_id}/run", status_code=202, responses=problems(404, 409))
async def run_task(task_id: TaskIdPath, caller: WorkspaceCaller, state: State) -> RunView:
    """Start work on an active task now, at any hour, also if it is parked. Returns the run.

    If a run works on it already, that one is returned.
    """
    return await state.services.task_scheduler.run_now(caller.tenant_id, task_id)


@router.post("/{task_id}/complete", responses=problems(404, 409, body=True))
async def complete_task(task_id: TaskIdPath, body: TaskEnd, caller: WorkspaceCaller, state: State) -> TaskView:
    """Complete an active task. It must have no open subtasks; the owner of the task above is woken."""
    return await state.services.tasks.complete(caller.tenant_id, PERSON, task_id, body.outcome)


@router.post("/{task_id}/cancel", responses=problems(404, 409, body=True))
async def cancel_task(task_id: TaskIdPath, body: TaskEnd, caller: WorkspaceCaller, state: State) -> TaskView:
    """Cancel a task and all open tasks below it; the owner of the task above is woken."""
    return await state.services.tasks.cancel(caller.tenant_id, PERSON, task_id, body.outcome)


@router.get("/{task_id}/history", responses=problems(400, 404, 422))
async def list_task_history(
    task_id: TaskIdPath, caller: WorkspaceReader, state: State, paging: PageQuery
) -> Page[TaskChangeView]:
    """List a task's changes, newest first."""
    listing = paging.of(caller.tenant_id, "task_history", int, task_id)
    rows = await state.services.tasks.history(caller.tenant_id, task_id, before=listing.key, limit=listing.rows)
    return listing.page(rows, lambda change: change.revision)


@router.put("/{task_id}/steps", responses=problems(404, 409, body=True), name="replace_task_steps")
async def replace_steps(task_id: TaskIdPath, body: StepsReplace, caller: WorkspaceCaller, state: State) -> TaskView:
    """Replace a task's whole plan. Steps given with their id stay the same steps."""
    return await state.services.tasks.plans.replace_steps(caller.tenant_id, PERSON, task_id, body)


@router.patch("/{task_id}/steps/{step_id}", responses=problems(404, 409, body=True), name="update_task_step")
async def update_step(
    task_id: TaskIdPath, step_id: StepIdPath, body: StepPatch, caller: WorkspaceCaller, state: State
) -> TaskView:
    """Change one step. A step with a subtask cannot be marked: it follows the subtask."""
    return await state.services.tasks.plans.update_step(caller.tenant_id, PERSON, task_id, step_id, body)


@router.post("/{task_id}/steps/{step_id}/subtask", status_code=201, responses=problems(404, 409, 410, body=True))
async def create_subtask(
    task_id: TaskIdPath, step_id: StepIdPath, body: SubtaskCreate, caller: WorkspaceCaller, state: State
) -> TaskView:
    """Create a subtask for a step of an active task. A step has one at a time."""
    return await state.services.tasks.plans.create_subtask(caller.tenant_id, PERSON, task_id, step_id, body)


@router.post("/{task_id}/resources", status_code=201, responses=problems(404, 409, body=True), name="add_task_resource")
async def add_resource(
    task_id: TaskIdPath, body: TaskResourceAdd, caller: WorkspaceCaller, state: State
) -> ResourceView:
    """Add a URL or a path that a task works with."""
    return await state.services.tasks.plans.add_resource(caller.tenant_id, PERSON, task_id, body)


@router.delete(
    "/{task_id}/resources/{resource_id}", status_code=204, responses=problems(404, 409), name="remove_task_resource"
)
async def remove_resource(
    task_id: TaskIdPath, resource_id: ResourceIdPath, caller: WorkspaceCaller, state: State
) -> None:
    """Remove a resource."""
    await state.services.tasks.plans.remove_resource(caller.tenant_id, PERSON, task_id, resource_id)
