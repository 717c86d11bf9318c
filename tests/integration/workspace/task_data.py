"""Tasks in given states, and actors, for tests of tasks."""

from collections.abc import Sequence
from typing import Any

from nova_workers.contracts.http.tasks import SubtaskCreate, TaskCreate, TaskStatus, TaskView
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.tasks.rules.service import PERSON, TaskActor, Tasks

TENANT = "ten_1"
A, B = TaskActor("a", "run_a", "thr_elsewhere"), TaskActor("b", "run_b", "thr_elsewhere")
"""Two agents, each in a run on a thread without a task."""


class RecordedDoorbells:
    """Records the doorbells."""

    def __init__(self) -> None:
        self.rung: list[Doorbell] = []

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Record doorbells of runs."""
        self.rung.extend(bells)

    def ring_deliveries(self) -> None:
        """Ignore doorbells of the outbox."""

    def ring_effects(self) -> None:
        """Fail: no change of a task leaves effects."""
        raise AssertionError("Tasks have no effects")


def new_task(title: str = "Tidy up", owner: str = "a", **fields: Any) -> TaskCreate:
    """Return the fields of a new task."""
    return TaskCreate.model_validate({"title": title, "owner_agent_id": owner, **fields})


async def active_task(tasks: Tasks, *steps: str, owner: str = "a") -> TaskView:
    """Make an active task with these steps."""
    given = new_task(owner=owner, status="active", steps=[{"title": step} for step in steps])
    return await tasks.create(TENANT, PERSON, given)


async def task_with_status(tasks: Tasks, status: TaskStatus) -> int:
    """Create a task with a status, and return its number."""
    task = await tasks.create(TENANT, PERSON, new_task(status="draft" if status in {"draft", "canceled"} else "active"))
    if status == "done":
        await tasks.complete(TENANT, PERSON, task.id)
    if status == "canceled":
        await tasks.cancel(TENANT, PERSON, task.id)
    return task.id


async def subtask_of(tasks: Tasks, parent: TaskView, at: int = 0, owner: str | None = None, **fields: Any) -> TaskView:
    """Delegate a step of a task to a subtask."""
    given = SubtaskCreate.model_validate({"owner_agent_id": owner, **fields})
    return await tasks.plans.create_subtask(TENANT, PERSON, parent.id, parent.steps[at].id, given)


async def kinds_of(tasks: Tasks, task_id: int) -> list[str]:
    """Return the kinds of a task's changes, oldest first."""
    return [change.kind for change in reversed(await tasks.history(TENANT, task_id, limit=100))]
