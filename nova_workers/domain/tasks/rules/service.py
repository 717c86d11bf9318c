"""Creates, changes, delegates and ends tasks, for people and for agents.

Every change is one transaction under the lock of the task's tree, with a row in its history and the runs it queues. So
concurrent callers lose no update and no run.
"""

from __future__ import annotations

from typing import Any

from nova_workers.base.errors import IllegalTransition, existing
from nova_workers.contracts.http.tasks import (
    TaskChangeView,
    TaskCreate,
    TaskPatch,
    TaskStatus,
    TaskSummary,
    TaskView,
)
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.idempotency.sql import name_made, once
from nova_workers.domain.prompts.rules.task import describe_task, task_section
from nova_workers.domain.tasks.rules.change import TaskChange, change_tasks
from nova_workers.domain.tasks.rules.plan import TaskPlans, write_new
from nova_workers.domain.tasks.rules.rules import (
    PERSON,
    TaskActor,
    check_may_instruct,
    check_move,
    check_open,
    check_revision,
)
from nova_workers.domain.tasks.sql import records as ledger
from nova_workers.domain.tasks.sql.history import list_changes
from nova_workers.domain.tasks.sql.plan import mark_step_done, unlink_steps
from nova_workers.ledger.work import Work

__all__ = ["PERSON", "TaskActor", "Tasks", "describe_task", "task_section"]


class Tasks:
    """The tasks of all tenants.

    Attributes:
        plans: Changes steps, subtasks and resources.
    """

    def __init__(self, work: Work) -> None:
        self._database = work.database
        self._work = work
        self.plans = TaskPlans(work)

    async def create(self, tenant_id: str, actor: TaskActor, given: TaskCreate) -> TaskView:
        """Create a task.

        Raises:
            NotFound: There is no such agent.
            Conflict: A resource is given twice.
            LimitExceeded: The tenant has its maximum of open tasks.
        """
        return (await self.create_once(tenant_id, actor, given, None))[0]

    async def create_once(
        self, tenant_id: str, actor: TaskActor, given: TaskCreate, request: RequestKey | None
    ) -> tuple[TaskView, bool]:
        """Create a task as `create` does, once for a request's key.

        Returns:
            The task, and whether an earlier request with the key made it.

        Raises:
            IdempotencyMismatch: The key was used for another request.
            NovaError: See `create`.
        """
        async with change_tasks(self._work, tenant_id, actor) as change:

            async def make() -> TaskView:
                task_id = await write_new(change, given)
                await name_made(change.connection, tenant_id, request, str(task_id))
                return await change.read(task_id)

            return await once(change.connection, tenant_id, request, make, lambda made_id: change.read(int(made_id)))

    async def get(self, tenant_id: str, task_id: int) -> TaskView:
        """Return a task.

        Raises:
            NotFound: There is no such task.
        """
        async with self._database.connection() as connection:
            return existing(await ledger.find_task(connection, tenant_id, task_id), "task", task_id)

    async def list(
        self,
        tenant_id: str,
        *,
        status: TaskStatus | None = None,
        owner_agent_id: str | None = None,
        parent_task_id: int | None = None,
        before: int | None = None,
        limit: int,
    ) -> list[TaskSummary]:
        """Return tasks, newest first, those with numbers below `before`."""
        async with self._database.connection() as connection:
            return await ledger.list_tasks(
                connection,
                tenant_id,
                status=status,
                owner_agent_id=owner_agent_id,
                parent_task_id=parent_task_id,
                before=before,
                limit=limit,
            )

    async def history(
        self, tenant_id: str, task_id: int, *, before: int | None = None, limit: int
    ) -> list[TaskChangeView]:
        """Return a task's changes before the revision `before`, newest first.

        Raises:
            NotFound: There is no such task.
        """
        await self.get(tenant_id, task_id)
        async with self._database.connection() as connection:
            return await list_changes(connection, tenant_id, task_id, before=before, limit=limit)

    async def update(self, tenant_id: str, actor: TaskActor, task_id: int, given: TaskPatch) -> TaskView:
        """Change a task's fields, and its status if one is given. Equal values change nothing.

        Raises:
            NotFound: There is no such task, or no such agent to own it.
            Forbidden: The agent has no part in it.
            Conflict: It has changed since the given revision.
            IllegalTransition: It has ended, or the given status cannot follow its own.
        """
        async with change_tasks(self._work, tenant_id, actor) as change:
            task = await change.take(task_id)
            check_revision(task, given.revision)
            check_may_instruct(actor, given.owner_agent_id or task.owner_agent_id)
            if given.status is not None:
                check_move(task_id, task.status, given.status)
            if given.model_fields_set - {"status", "revision"}:
                check_open(task)
                task = await _describe(change, task, given)
            return task if given.status is None else await _move(change, task, given.status, None)

    async def activate(self, tenant_id: str, actor: TaskActor, task_id: int) -> TaskView:
        """Activate a draft: it gets a thread of its own, on which its owner works.

        Raises:
            NotFound: There is no such task, or its owner was deleted.
            Forbidden: The agent has no part in it.
            IllegalTransition: It is not a draft.
        """
        return await self._end_or_begin(tenant_id, actor, task_id, "active", None)

    async def complete(self, tenant_id: str, actor: TaskActor, task_id: int, outcome: str | None = None) -> TaskView:
        """Complete an active task. For a subtask: its step becomes done, and the owner of the task above is woken.

        Raises:
            NotFound: There is no such task.
            Forbidden: The agent has no part in it.
            IllegalTransition: It is not active, or has open subtasks, which are not completed with it.
        """
        return await self._end_or_begin(tenant_id, actor, task_id, "done", outcome)

    async def cancel(self, tenant_id: str, actor: TaskActor, task_id: int, outcome: str | None = None) -> TaskView:
        """Cancel a task and all open tasks below it.

        For a subtask: its step is free again, and the owner of the task above is woken.

        Raises:
            NotFound: There is no such task.
            Forbidden: The agent has no part in it.
            IllegalTransition: It has ended.
        """
        return await self._end_or_begin(tenant_id, actor, task_id, "canceled", outcome)

    async def _end_or_begin(
        self, tenant_id: str, actor: TaskActor, task_id: int, status: TaskStatus, outcome: str | None
    ) -> TaskView:
        async with change_tasks(self._work, tenant_id, actor) as change:
            task = await change.take(task_id)
            check_move(task_id, task.status, status)
            return await _move(change, task, status, outcome)


async def _describe(change: TaskChange, task: TaskView, given: TaskPatch) -> TaskView:
    """Write the given fields that differ. A new owner of an active task gets a thread for it."""
    fields = given.model_dump(include={"title", "description", "owner_agent_id"}, exclude_none=True)
    changed = {name: value for name, value in fields.items() if value != getattr(task, name)}
    if not changed:
        return task
    if "owner_agent_id" in changed:
        await change.need_agent(changed["owner_agent_id"])
    details = {name: {"from": getattr(task, name), "to": value} for name, value in changed.items()}
    task = task.model_copy(update=changed)
    await ledger.set_fields(
        change.connection,
        change.tenant_id,
        task.id,
        title=task.title,
        description=task.description,
        owner_agent_id=task.owner_agent_id,
    )
    owner_changes = "owner_agent_id" in changed and task.status == "active"
    if owner_changes:
        await change.stop_work([task.id])
        await change.bind_thread(task)
    await change.record(task.id, "updated", details)
    if owner_changes:
        await change.wake(task.id)
    return await change.read(task.id)


async def _move(change: TaskChange, task: TaskView, status: TaskStatus, outcome: str | None) -> TaskView:
    """Apply a legal transition with its consequences."""
    if status == "active":
        await ledger.set_active(change.connection, change.tenant_id, task.id)
        thread_id = await change.bind_thread(task)
        await change.record(task.id, "activated", {"thread_id": thread_id})
        return await change.read(task.id)
    below = await ledger.list_open_descendants(change.connection, change.tenant_id, task.id)
    if status == "done" and below:
        raise IllegalTransition(
            f"Task {task.id} cannot go from {task.status!r} to 'done' while subtasks of it are open: "
            f"{', '.join(str(each) for each in below)}. Complete or cancel them first.",
            task_id=task.id,
            from_status=task.status,
            to_status=status,
            open_subtasks=below,
        )
    await ledger.end_task(change.connection, change.tenant_id, task.id, status, outcome=outcome, expected=task.status)
    await change.stop_work([task.id, *below])
    await _record_end(change, task, status, outcome, below)
    ended = await change.read(task.id)
    await _update_parent(change, ended)
    return ended


async def _record_end(
    change: TaskChange, task: TaskView, status: TaskStatus, outcome: str | None, below: list[int]
) -> None:
    details: dict[str, Any] = {"outcome": outcome, "canceled_with_it": below}
    await change.record(
        task.id,
        "completed" if status == "done" else "canceled",
        {name: value for name, value in details.items() if value},
    )
    if status == "done":
        await mark_step_done(change.connection, change.tenant_id, task.id)
        return
    await ledger.cancel_descendants(
        change.connection,
        change.tenant_id,
        below,
        actor=change.actor.name,
        run_id=change.actor.run_id,
        details={"canceled_with": task.id},
    )
    await unlink_steps(change.connection, change.tenant_id, [task.id, *below])


async def _update_parent(change: TaskChange, task: TaskView) -> None:
    """Record a subtask's end in the task above, and wake that task's owner."""
    if task.parent_task_id is None:
        return
    parent = await change.read(task.parent_task_id)
    about = {"subtask_id": task.id, "step_id": task.parent_step_id, "status": task.status}
    kind = "subtask_completed" if task.status == "done" else "subtask_canceled"
    await change.record(parent.id, kind, {name: about[name] for name in ("subtask_id", "step_id")})
    if parent.status == "active":
        await change.wake_owner(parent, _wake_message(parent, task), about)


def _wake_message(parent: TaskView, task: TaskView) -> str:
    step = next((step for step in parent.steps if step.id == task.parent_step_id), None)
    of_step = "" if step is None else f", for the step {step.title!r},"
    result = "is done" if task.status == "done" else "was canceled, and its step is free again"
    outcome = f"\n\nOutcome:\n{task.outcome}" if task.outcome else ""
    return (
        f"Subtask {task.id} ({task.title!r}){of_step} of task {parent.id} ({parent.title!r}) {result}.{outcome}\n\n"
        f"Go on with task {parent.id}."
    )
