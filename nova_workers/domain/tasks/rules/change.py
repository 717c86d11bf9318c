"""A change to a task: one unit of work under the lock of its tree."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nova_workers.base.errors import NotFound, existing, missing
from nova_workers.base.ids import new_id
from nova_workers.contracts.content import text_block
from nova_workers.contracts.http.tasks import TaskView
from nova_workers.contracts.runs import Submission
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.runs.sql.submit import insert_run
from nova_workers.domain.tasks.rules.rules import TaskActor, check_may_change
from nova_workers.domain.tasks.sql import records as ledger
from nova_workers.domain.tasks.sql import schedule
from nova_workers.domain.tasks.sql.history import record_change
from nova_workers.domain.tasks.sql.threads import agent_exists, ensure_thread
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import UnitOfWork, Work


@dataclass(frozen=True, slots=True)
class TaskChange:
    """The operations of one change, valid for its unit of work."""

    tx: UnitOfWork
    tenant_id: str
    actor: TaskActor

    @property
    def connection(self) -> Connection:
        """The connection of the transaction."""
        return self.tx.connection

    async def take(self, task_id: int) -> TaskView:
        """Lock the task's tree and return the task, if the actor may change it.

        Raises:
            NotFound: There is no such task.
            Forbidden: The agent has no part in it.
        """
        if not await ledger.lock_tree(self.connection, self.tenant_id, task_id):
            raise missing("task", task_id)
        task = await self.read(task_id)
        if self.actor.agent_id is not None:
            above = await ledger.list_ancestors(self.connection, self.tenant_id, task_id)
            check_may_change(self.actor, task, [owner for _, owner in above])
        return task

    async def read(self, task_id: int) -> TaskView:
        """Return a task in its current state.

        Raises:
            NotFound: There is no such task.
        """
        return existing(await ledger.find_task(self.connection, self.tenant_id, task_id), "task", task_id)

    async def record(self, task_id: int, kind: str, details: Mapping[str, Any]) -> None:
        """Add to the task's history. After a person's change the task is due at once, after an agent's as scheduled."""
        await record_change(
            self.connection,
            self.tenant_id,
            task_id,
            kind,
            details,
            actor=self.actor.name,
            run_id=self.actor.run_id,
            wake=self.actor.agent_id is None,
        )

    async def wake(self, task_id: int) -> None:
        """Make an active task due at once, for any actor."""
        await schedule.wake(self.connection, self.tenant_id, task_id)

    async def stop_work(self, task_ids: Sequence[int]) -> None:
        """Cancel the runs of tasks, except the actor's own run."""
        run_id = self.actor.run_id
        self.tx.ring(await schedule.stop_work(self.connection, self.tenant_id, task_ids, except_run_id=run_id))

    async def need_agent(self, agent_id: str) -> None:
        """Refuse an owner that does not exist.

        Raises:
            NotFound: There is no such agent, or it was deleted.
            AgentRenamed: It has another id now.
        """
        if not await agent_exists(self.connection, self.tenant_id, agent_id):
            await refuse_former_id(self.connection, self.tenant_id, agent_id)
            raise missing("agent", agent_id, field="owner_agent_id")

    async def bind_thread(self, task: TaskView) -> str:
        """Return the task's thread; creates it if there is none.

        Raises:
            NotFound: The owner was deleted.
        """
        thread_id = await ensure_thread(self.connection, self.tenant_id, task)
        if thread_id is None:
            raise NotFound(
                f"Agent {task.owner_agent_id!r}, who owns task {task.id}, was deleted. Give the task another owner.",
                kind="agent",
                id=task.owner_agent_id,
                field="owner_agent_id",
            )
        return thread_id

    async def wake_owner(self, task: TaskView, words: str, about: Mapping[str, Any]) -> None:
        """Queue a message to the owner on the task's thread, unless the actor's run is on that thread.

        The message and the change that it reports are one transaction. The run that answers it is an invocation like
        those of the scheduler. A deleted owner gets none.
        """
        thread_id = await ensure_thread(self.connection, self.tenant_id, task)
        if thread_id is None or thread_id == self.actor.thread_id:
            return
        submission = Submission(
            tenant_id=self.tenant_id,
            content=(text_block(words),),
            thread_id=thread_id,
            queue="background",
            source="task",
            metadata={"task_id": task.id, **about},
        )
        accepted = await insert_run(self.connection, submission, new_id("run"))
        if accepted is not None:
            await schedule.mark_working(self.connection, self.tenant_id, task.id, accepted.run_id)
            self.tx.ring([accepted.doorbell])


@asynccontextmanager
async def change_tasks(work: Work, tenant_id: str, actor: TaskActor) -> AsyncGenerator[TaskChange]:
    """Open a change to tasks. After its commit the doorbells of its runs ring."""
    async with work.begin() as tx:
        yield TaskChange(tx, tenant_id, actor)
