# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/tasks``."""

from nova_workers.base.vocabulary import TaskStatus
from nova_workers.client.headers import idempotency
from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.tasks import (
    ResourceView,
    StepPatch,
    StepsReplace,
    SubtaskCreate,
    TaskChangeView,
    TaskCreate,
    TaskEnd,
    TaskPatch,
    TaskResourceAdd,
    TaskSummary,
    TaskView,
)
from nova_workers.contracts.http.wire import RunView


class Tasks:
    """``/v1/tasks``: structured work that agents own."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        status: TaskStatus | None = None,
        owner_agent_id: str | None = None,
        parent_task_id: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[TaskSummary]:
        """Return a page of tasks, newest first."""
        return await self._transport.fetch(
            Page[TaskSummary],
            "GET",
            "/v1/tasks",
            params={
                "status": status,
                "owner_agent_id": owner_agent_id,
                "parent_task_id": parent_task_id,
                "limit": limit,
                "cursor": cursor,
            },
        )

    async def get(self, task_id: int) -> TaskView:
        """Return a task."""
        return await self._transport.fetch(TaskView, "GET", f"/v1/tasks/{task_id}")

    async def create(self, task: TaskCreate, *, idempotency_key: str | None = None) -> TaskView:
        """Create a task, with an Idempotency-Key, generated unless given; `NotFound` if its owner does not exist."""
        return await self._transport.fetch(
            TaskView, "POST", "/v1/tasks", body=task, headers=idempotency(idempotency_key)
        )

    async def update(self, task_id: int, change: TaskPatch) -> TaskView:
        """Change the fields that `change` sets."""
        return await self._transport.fetch(TaskView, "PATCH", f"/v1/tasks/{task_id}", body=change)

    async def activate(self, task_id: int) -> TaskView:
        """Activate a draft; `IllegalTransition` if it is not one."""
        return await self._transport.fetch(TaskView, "POST", f"/v1/tasks/{task_id}/activate")

    async def run(self, task_id: int) -> RunView:
        """Start work on an active task now, and return its run, or its current one."""
        return await self._transport.fetch(RunView, "POST", f"/v1/tasks/{task_id}/run")

    async def complete(self, task_id: int, end: TaskEnd | None = None) -> TaskView:
        """Complete an active task; `IllegalTransition` while it has open subtasks."""
        return await self._transport.fetch(TaskView, "POST", f"/v1/tasks/{task_id}/complete", body=end or TaskEnd())

    async def cancel(self, task_id: int, end: TaskEnd | None = None) -> TaskView:
        """Cancel a task and its open subtasks."""
        return await self._transport.fetch(TaskView, "POST", f"/v1/tasks/{task_id}/cancel", body=end or TaskEnd())

    async def history(
        self, task_id: int, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[TaskChangeView]:
        """Return a page of a task's history, newest first."""
        return await self._transport.fetch(
            Page[TaskChangeView], "GET", f"/v1/tasks/{task_id}/history", params={"limit": limit, "cursor": cursor}
        )

    async def replace_steps(self, task_id: int, steps: StepsReplace) -> TaskView:
        """Replace a task's whole plan; steps given with their id are kept."""
        return await self._transport.fetch(TaskView, "PUT", f"/v1/tasks/{task_id}/steps", body=steps)

    async def update_step(self, task_id: int, step_id: str, change: StepPatch) -> TaskView:
        """Change the fields of a step that `change` sets."""
        return await self._transport.fetch(TaskView, "PATCH", f"/v1/tasks/{task_id}/steps/{step_id}", body=change)

    async def create_subtask(self, task_id: int, step_id: str, subtask: SubtaskCreate | None = None) -> TaskView:
        """Create the subtask that does a step, and return it."""
        return await self._transport.fetch(
            TaskView, "POST", f"/v1/tasks/{task_id}/steps/{step_id}/subtask", body=subtask or SubtaskCreate()
        )

    async def add_resource(self, task_id: int, resource: TaskResourceAdd) -> ResourceView:
        """Add a resource; `Conflict` if the task has it."""
        return await self._transport.fetch(ResourceView, "POST", f"/v1/tasks/{task_id}/resources", body=resource)

    async def remove_resource(self, task_id: int, resource_id: str) -> None:
        """Remove a resource."""
        await self._transport.send("DELETE", f"/v1/tasks/{task_id}/resources/{resource_id}")
