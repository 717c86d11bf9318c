"""Tasks of a fleet on one loop: a test calls the scheduler's ticks and moves time in the ledger."""

from __future__ import annotations

from typing import Any

from nova_workers.contracts.http.tasks import SubtaskCreate, TaskCreate, TaskView
from nova_workers.domain.tasks.rules.scheduling import TaskScheduler
from nova_workers.domain.tasks.rules.service import PERSON, TaskActor, Tasks
from nova_workers.ledger.database import Row
from tests.support.harness.workers import Harness

OWNER = "clerk"
"""An agent that answers and changes nothing."""


class TaskHarness:
    """Creates tasks, lets hours pass, and counts the runs that were started.

    Attributes:
        tasks: The service that people and agents use.
        scheduler: The first; `another` returns more.
    """

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.tenant_id = harness.tenant_id
        self.tasks = Tasks(harness.work)
        self.scheduler = self.another()

    def another(self) -> TaskScheduler:
        """Return one more scheduler."""
        return TaskScheduler(self.harness.work, self.harness.settings.tasks)

    async def open(self) -> None:
        """Add the owner, with working hours around the clock."""
        await self.harness.add_agent(OWNER, {"name": "Clerk", "engine": "scripted", "capabilities": {"tasks": {}}})
        await self.hours(0, 24)

    async def hours(self, start: int, end: int, zone: str = "UTC") -> None:
        """Set the tenant's hours."""
        await self.harness.database.execute(
            "UPDATE tenants SET work_from = :work_from, work_until = :work_until, timezone = :timezone"
            " WHERE id = :tenant_id",
            tenant_id=self.tenant_id,
            work_from=start,
            work_until=end,
            timezone=zone,
        )

    async def close(self, tenant_id: str) -> None:
        """End a tenant's working hours now, for longer than any test takes."""
        await self.harness.database.execute(
            "UPDATE tenants SET work_from = (hour + 2) % 24, work_until = (hour + 3) % 24, timezone = 'UTC'"
            "  FROM (SELECT extract(hour FROM now() AT TIME ZONE 'UTC')::int AS hour) clock WHERE id = :tenant_id",
            tenant_id=tenant_id,
        )

    async def task(self, *steps: str, owner: str = OWNER, **fields: Any) -> TaskView:
        """Make an active task."""
        given = {"title": "Tidy up", "owner_agent_id": owner, "status": "active", **fields}
        return await self.tasks.create(
            self.tenant_id, PERSON, TaskCreate.model_validate(given | {"steps": [{"title": step} for step in steps]})
        )

    async def subtask(self, parent: TaskView, at: int = 0, **fields: Any) -> TaskView:
        """Delegate a step to a subtask, as its owner does in another run."""
        given = SubtaskCreate.model_validate(fields)
        return await self.tasks.plans.create_subtask(
            self.tenant_id, TaskActor(OWNER, "run_else", "thr_else"), parent.id, parent.steps[at].id, given
        )

    async def get(self, task: TaskView) -> TaskView:
        """Return a task as it is now."""
        return await self.tasks.get(self.tenant_id, task.id)

    async def pass_hour(self) -> None:
        """Let an hour pass for every task."""
        await self.harness.database.execute("UPDATE tasks SET work_at = work_at - interval '1 hour'")

    async def runs(self, task: TaskView | None = None) -> list[Row]:
        """Return the runs that were started for tasks, oldest first."""
        return await self.harness.database.fetch(
            "SELECT * FROM runs WHERE source = 'task' AND (:thread_id::text IS NULL OR thread_id = :thread_id)"
            " ORDER BY id",
            thread_id=None if task is None else (await self.get(task)).thread_id,
        )

    async def tick(self) -> int:
        """Run the scheduler once, and return how many runs it started."""
        before = len(await self.runs())
        await self.scheduler.tick()
        return len(await self.runs()) - before

    async def work(self) -> int:
        """Run the scheduler, execute the runs that it started, and run it again to record their ends."""
        begun = await self.tick()
        await self.harness.settle(*self.harness.workers)
        # Ended invocations are recorded by the next tick; nothing else is due by then, unless an owner got a message.
        await self.scheduler.tick()
        return begun

    async def notices(self) -> list[str]:
        """Return the notices to people."""
        rows = await self.harness.database.fetch(
            "SELECT payload FROM deliveries WHERE kind = 'notification' ORDER BY id"
        )
        return [row["payload"]["text"] for row in rows]
