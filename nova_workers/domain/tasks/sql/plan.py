"""Steps and resources of tasks. Callers hold the lock of the task's tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nova_workers.base.ids import new_id
from nova_workers.ledger.database import Connection

# Only `_LINK` and `_FREE` change subtask_id, so editing steps cannot break a link.
_WRITE = """
INSERT INTO task_steps (id, tenant_id, task_id, position, title, details, done)
SELECT x.id, :tenant_id, :task_id, x.position, x.title, x.details, x.done
  FROM jsonb_to_recordset(:rows) AS x(id text, position int, title text, details text, done bool)
ON CONFLICT (id) DO UPDATE
   SET position = EXCLUDED.position, title = EXCLUDED.title, details = EXCLUDED.details, done = EXCLUDED.done
 WHERE task_steps.tenant_id = :tenant_id AND task_steps.task_id = :task_id
"""

_DROP = """
DELETE FROM task_steps
 WHERE tenant_id = :tenant_id AND task_id = :task_id AND id = ANY(:step_ids::text[]) AND subtask_id IS NULL
"""

_LINK = """
UPDATE task_steps SET subtask_id = :subtask_id
 WHERE tenant_id = :tenant_id AND task_id = :task_id AND id = :step_id AND subtask_id IS NULL AND NOT done
RETURNING id
"""

_MARK = "UPDATE task_steps SET done = true WHERE tenant_id = :tenant_id AND subtask_id = :subtask_id"

_FREE = """
UPDATE task_steps SET done = false, subtask_id = NULL
 WHERE tenant_id = :tenant_id AND subtask_id = ANY(:subtask_ids::int[])
"""

_ADD_RESOURCE = """
INSERT INTO task_resources (id, tenant_id, task_id, kind, value, title)
VALUES (:resource_id, :tenant_id, :task_id, :kind, :value, :title)
"""

_REMOVE_RESOURCE = """
DELETE FROM task_resources WHERE tenant_id = :tenant_id AND task_id = :task_id AND id = :resource_id RETURNING id
"""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step to write, without its link to a subtask."""

    id: str
    position: int
    title: str
    details: str
    done: bool


async def write_steps(connection: Connection, tenant_id: str, task_id: int, steps: Sequence[PlannedStep]) -> None:
    """Insert or update steps."""
    rows = [
        {
            "id": step.id,
            "position": step.position,
            "title": step.title,
            "details": step.details,
            "done": step.done,
        }
        for step in steps
    ]
    await connection.execute(_WRITE, tenant_id=tenant_id, task_id=task_id, rows=rows)


async def drop_steps(connection: Connection, tenant_id: str, task_id: int, step_ids: Sequence[str]) -> None:
    """Delete steps, except those with a subtask."""
    await connection.execute(_DROP, tenant_id=tenant_id, task_id=task_id, step_ids=list(step_ids))


async def link_step(connection: Connection, tenant_id: str, task_id: int, step_id: str, subtask_id: int) -> bool:
    """Link a step to its subtask. False if it has one, or is done."""
    return (
        await connection.fetchval(_LINK, tenant_id=tenant_id, task_id=task_id, step_id=step_id, subtask_id=subtask_id)
        is not None
    )


async def mark_step_done(connection: Connection, tenant_id: str, subtask_id: int) -> None:
    """Mark a subtask's step as done."""
    await connection.execute(_MARK, tenant_id=tenant_id, subtask_id=subtask_id)


async def unlink_steps(connection: Connection, tenant_id: str, subtask_ids: Sequence[int]) -> None:
    """Unlink canceled subtasks from their steps, which become not done."""
    await connection.execute(_FREE, tenant_id=tenant_id, subtask_ids=list(subtask_ids))


async def add_resource(
    connection: Connection, tenant_id: str, task_id: int, *, kind: str, value: str, title: str | None
) -> str:
    """Add a resource and return its id."""
    resource_id = new_id("tre")
    await connection.execute(
        _ADD_RESOURCE,
        resource_id=resource_id,
        tenant_id=tenant_id,
        task_id=task_id,
        kind=kind,
        value=value,
        title=title,
    )
    return resource_id


async def remove_resource(connection: Connection, tenant_id: str, task_id: int, resource_id: str) -> bool:
    """Remove a resource. False if the task has no such resource."""
    return (
        await connection.fetchval(_REMOVE_RESOURCE, tenant_id=tenant_id, task_id=task_id, resource_id=resource_id)
        is not None
    )
