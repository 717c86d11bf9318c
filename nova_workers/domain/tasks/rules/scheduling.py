"""The task scheduler: starts runs on active tasks until each task ends or is parked.

Ticks may overlap, repeat or fail. Each change of a task is one transaction under the lock of the task's tree, which
writes the run and the task together, so a concurrent tick finds nothing due. The reconciler repeats lost doorbells.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from nova_workers.base.config import TaskSettings
from nova_workers.base.errors import IllegalTransition, NotFound, Unavailable, missing
from nova_workers.base.ids import new_id
from nova_workers.contracts.content import text_block
from nova_workers.contracts.deliveries import Sender
from nova_workers.contracts.http.tasks import TaskView
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.runs import Accepted, Submission
from nova_workers.domain.delivery.rules.from_agents import MAX_NOTIFICATIONS_PER_RUN, add_to_outbox
from nova_workers.domain.prompts.rules import work_words
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.domain.runs.sql.submit import insert_run
from nova_workers.domain.tasks.sql import schedule
from nova_workers.domain.tasks.sql.records import find_task, lock_tree
from nova_workers.domain.tasks.sql.threads import ensure_thread
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)

_MOST_OF_A_TENANT = 200
"""Invocations that one tick starts for a tenant; the next tick continues."""
_MOST_OVER = 2_000

_Step = Callable[[UnitOfWork, str, TaskView], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a tick did: invocations that had ended, and tasks that it started or parked."""

    settled: int
    looked_at: int


class TaskScheduler:
    """Starts invocations, and parks tasks that cannot make progress."""

    def __init__(self, work: Work, settings: TaskSettings) -> None:
        self._database = work.database
        self._work = work
        self._settings = settings

    async def tick(self) -> Ticked:
        """Record which invocations ended, then start those that are due.

        Raises:
            Unavailable: The database does not answer; the next tick does the work.
        """
        async with self._database.connection() as connection:
            over = await schedule.find_ended_invocations(connection, limit=_MOST_OVER)
        await self._each(over, self._settle)
        async with self._database.connection() as connection:
            due = await schedule.find_due(connection, most_of_a_tenant=_MOST_OF_A_TENANT)
        await self._each(due, self._begin_due)
        return Ticked(len(over), len(due))

    async def run_now(self, tenant_id: str, task_id: int) -> RunView:
        """Start an invocation of a task now, even if it is not due or is parked.

        Returns:
            The run; if an invocation is in progress already, that one.

        Raises:
            NotFound: There is no such task, or its owner was deleted.
            IllegalTransition: It is not active.
        """
        async with self._work.begin() as tx:
            connection = tx.connection
            found = await lock_tree(connection, tenant_id, task_id)
            task = await find_task(connection, tenant_id, task_id) if found else None
            if task is None:
                raise missing("task", task_id)
            _check_active(task)
            run_id = await schedule.invocation_in_flight(connection, tenant_id, task_id)
            if run_id is not None:
                return await get_run(connection, tenant_id, run_id)
            accepted = await self._begin(tx, tenant_id, task, requested=True)
            if accepted is None:
                raise NotFound(f"{_gone(task)} Give the task another owner.", kind="agent", id=task.owner_agent_id)
            return await get_run(connection, tenant_id, accepted.run_id)

    async def _each(self, tasks: Sequence[tuple[str, int]], step: _Step) -> None:
        """Process each task in its own unit of work. One that fails is left to the next tick."""
        for tenant_id, task_id in tasks:
            try:
                await self._alone(tenant_id, task_id, step)
            except Unavailable:
                raise
            except Exception:
                _log.exception("task.not_scheduled", tenant_id=tenant_id, task_id=task_id)

    async def _alone(self, tenant_id: str, task_id: int, step: _Step) -> None:
        async with self._work.begin() as tx:
            # The lock's holder changes the tree, or is another scheduler: the next tick sees the result.
            if not await lock_tree(tx.connection, tenant_id, task_id, wait=False):
                return
            task = await find_task(tx.connection, tenant_id, task_id)
            if task is not None:
                await step(tx, tenant_id, task)

    async def _settle(self, tx: UnitOfWork, tenant_id: str, task: TaskView) -> None:
        connection = tx.connection
        settled = await schedule.settle(connection, tenant_id, task.id)
        if settled is None or settled.status != "active":
            return
        most = self._settings.park_after_idle
        if settled.idle_invocations >= most:
            reason = f"{settled.idle_invocations} runs in a row changed nothing"
            if settled.last is not None and settled.last.error:
                reason += f"; the last one failed: {settled.last.error}"
            await self._park(connection, tenant_id, task, reason)
            await _give_notice(tx, tenant_id, task, settled.last, reason)
        elif reason := _waits(task):
            await self._park(connection, tenant_id, task, reason)

    async def _begin_due(self, tx: UnitOfWork, tenant_id: str, task: TaskView) -> None:
        if not await schedule.is_due(tx.connection, tenant_id, task.id):
            return
        if reason := _waits(task):
            await self._park(tx.connection, tenant_id, task, reason)
        elif await self._begin(tx, tenant_id, task) is None:
            await self._park(tx.connection, tenant_id, task, _gone(task))

    async def _begin(
        self, tx: UnitOfWork, tenant_id: str, task: TaskView, *, requested: bool = False
    ) -> Accepted | None:
        """Queue an invocation on the task's thread. None if the owner was deleted."""
        connection = tx.connection
        thread_id = await ensure_thread(connection, tenant_id, task)
        if thread_id is None:
            return None
        submission = Submission(
            tenant_id=tenant_id,
            content=(text_block(work_words(task.id)),),
            thread_id=thread_id,
            queue="background",
            source="task",
            metadata={"task_id": task.id},
        )
        accepted = await insert_run(connection, submission, new_id("run"))
        if accepted is not None:
            await schedule.mark_working(connection, tenant_id, task.id, accepted.run_id, requested=requested)
            tx.ring([accepted.doorbell])
            _log.info("task.begun", tenant_id=tenant_id, task_id=task.id, run_id=accepted.run_id, requested=requested)
        return accepted

    async def _park(self, connection: Connection, tenant_id: str, task: TaskView, reason: str) -> None:
        await schedule.park(connection, tenant_id, task.id, reason)
        _log.info("task.parked", tenant_id=tenant_id, task_id=task.id, reason=reason)


def _check_active(task: TaskView) -> None:
    if task.status != "active":
        advice = "Activate it first." if task.status == "draft" else "Make a new task for what is left to do."
        raise IllegalTransition(
            f"Task {task.id} is {task.status!r}; only an active task is worked on. {advice}",
            task_id=task.id,
            from_status=task.status,
        )


def _waits(task: TaskView) -> str | None:
    """Return the reason for which a task waits, if all remaining steps of its plan are open subtasks."""
    left = [step for step in task.steps if not step.done]
    subtasks = [step.subtask for step in left if step.subtask is not None]
    others = [subtask.id for subtask in subtasks if subtask.status in {"draft", "active"}]
    if not left or len(others) < len(left):
        return None
    return f"waits for subtask{'s' if len(others) > 1 else ''} {', '.join(str(number) for number in others)}"


def _gone(task: TaskView) -> str:
    return f"Agent {task.owner_agent_id!r}, who owns task {task.id}, was deleted."


async def _give_notice(
    tx: UnitOfWork, tenant_id: str, task: TaskView, last: schedule.Invocation | None, reason: str
) -> None:
    """Notify the person, as the last invocation."""
    if last is None:
        return
    text = (
        f"Task {task.id} ({task.title}) is parked: {reason}. Work stops until it is changed, "
        f"or started with `nova tasks run {task.id}`."
    )
    # One more than the run itself may send: this one is from the scheduler.
    await add_to_outbox(
        tx,
        Sender(tenant_id, last.agent_id, last.thread_id, last.run_id),
        "notification",
        {"text": text, "task_id": task.id},
        same="text",
        at_most=MAX_NOTIFICATIONS_PER_RUN + 1,
    )
