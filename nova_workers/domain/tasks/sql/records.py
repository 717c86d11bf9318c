"""Inserts, changes and reads tasks.

A caller that changes a task holds the lock of its tree (`lock_tree`) until the transaction ends, so what it read under
the lock stays true. Lock order everywhere: a tree of tasks, then the tenant's counter, then a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova_workers.base.errors import LimitExceeded
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import OPEN_TASKS, sql_list
from nova_workers.contracts.http.tasks import (
    MAX_OPEN_TASKS,
    MAX_TASK_ID,
    TaskStatus,
    TaskSummary,
    TaskView,
)
from nova_workers.contracts.waits import describe_waits
from nova_workers.domain.tasks.sql.hours import WITH_NEXT_WORK
from nova_workers.ledger.database import Connection, Row

# Locks the tenant's row until the transaction ends: numbers grow in commit order, and the count of open tasks is exact.
_NEXT_NUMBER = """
UPDATE tenants SET next_task_id = next_task_id + 1 WHERE id = :tenant_id AND next_task_id < :most_number
RETURNING next_task_id - 1
"""

_COUNT_OPEN = f"SELECT count(*) FROM tasks WHERE tenant_id = :tenant_id AND status IN {sql_list(OPEN_TASKS)}"

_INSERT = """
INSERT INTO tasks (tenant_id, id, title, description, owner_agent_id, created_by, parent_task_id, parent_step_id)
VALUES (:tenant_id, :number, :title, :description, :owner_agent_id, :created_by, :parent_task_id, :parent_step_id)
"""

# A parent never changes, so the root can be found before the lock. One lock per tree, on its root: writers of a tree
# are serialized, and none waits for a second tree's lock while holding a first.
_LOCK_TREE = """
WITH RECURSIVE up AS (
    SELECT id, parent_task_id FROM tasks WHERE tenant_id = :tenant_id AND id = :task_id
    UNION ALL
    SELECT t.id, t.parent_task_id FROM up JOIN tasks t ON t.tenant_id = :tenant_id AND t.id = up.parent_task_id
)
SELECT t.id FROM tasks t JOIN up ON up.id = t.id
 WHERE t.tenant_id = :tenant_id AND up.parent_task_id IS NULL
   FOR NO KEY UPDATE OF t {others}
"""

# The task's parent first, then upwards.
_ANCESTORS = """
WITH RECURSIVE up AS (
    SELECT p.id, p.parent_task_id, p.owner_agent_id, 1 AS distance
      FROM tasks t JOIN tasks p ON p.tenant_id = t.tenant_id AND p.id = t.parent_task_id
     WHERE t.tenant_id = :tenant_id AND t.id = :task_id
    UNION ALL
    SELECT p.id, p.parent_task_id, p.owner_agent_id, up.distance + 1
      FROM up JOIN tasks p ON p.tenant_id = :tenant_id AND p.id = up.parent_task_id
)
SELECT id, owner_agent_id FROM up ORDER BY distance
"""

# An open task has only open ancestors, so the walk can stop at ended tasks.
_OPEN_DESCENDANTS = f"""
WITH RECURSIVE down AS (
    SELECT id FROM tasks WHERE tenant_id = :tenant_id AND parent_task_id = :task_id AND status IN {sql_list(OPEN_TASKS)}
    UNION ALL
    SELECT t.id FROM down
      JOIN tasks t ON t.tenant_id = :tenant_id AND t.parent_task_id = down.id AND t.status IN {sql_list(OPEN_TASKS)}
)
SELECT id FROM down ORDER BY id
"""

# The kinds of open waits of the active run on the task's thread.
_AWAITS = """
ARRAY(SELECT w.kind FROM threads h JOIN run_waits w ON w.run_id = h.active_run_id
       WHERE h.id = t.thread_id AND w.status = 'open' ORDER BY w.id) AS awaits
"""

# One statement, so that the result is one moment of the task.
_FIND = f"""
SELECT t.*,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                   'id', s.id, 'title', s.title, 'details', s.details, 'done', s.done,
                   'subtask', CASE WHEN c.id IS NOT NULL THEN jsonb_build_object(
                       'id', c.id, 'title', c.title, 'status', c.status, 'owner_agent_id', c.owner_agent_id) END
               ) ORDER BY s.position), '[]')
          FROM task_steps s LEFT JOIN tasks c ON c.tenant_id = s.tenant_id AND c.id = s.subtask_id
         WHERE s.tenant_id = t.tenant_id AND s.task_id = t.id) AS steps,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                   'id', r.id, 'kind', r.kind, 'value', r.value, 'title', r.title, 'created_at', r.created_at
               ) ORDER BY r.id), '[]')
          FROM task_resources r
         WHERE r.tenant_id = t.tenant_id AND r.task_id = t.id) AS resources,
       {_AWAITS}, work.next_at
  FROM tasks t {WITH_NEXT_WORK}
 WHERE t.tenant_id = :tenant_id AND t.id = :task_id
"""

# One statement per set of filters, so that each is planned for the index that fits it.
_LIST = f"""
SELECT t.*, s.steps_done, s.steps_total, {_AWAITS}, work.next_at
  FROM tasks t {WITH_NEXT_WORK}
 CROSS JOIN LATERAL (
     SELECT count(*) FILTER (WHERE done) AS steps_done, count(*) AS steps_total
       FROM task_steps WHERE tenant_id = t.tenant_id AND task_id = t.id
 ) s
 WHERE t.tenant_id = :tenant_id{{filters}}
 ORDER BY t.id DESC
 LIMIT :limit
"""

_CONDITIONS = {
    "status": "t.status = :status",
    "owner_agent_id": "t.owner_agent_id = :owner_agent_id",
    "parent_task_id": "t.parent_task_id = :parent_task_id",
    "before": "t.id < :before",
}

_SET_FIELDS = """
UPDATE tasks SET title = :title, description = :description, owner_agent_id = :owner_agent_id
 WHERE tenant_id = :tenant_id AND id = :task_id
"""

_SET_ACTIVE = """
UPDATE tasks SET status = 'active', work_at = now()
 WHERE tenant_id = :tenant_id AND id = :task_id AND status = 'draft'
RETURNING id
"""

_END = """
UPDATE tasks SET status = :status, outcome = :outcome, ended_at = now()
 WHERE tenant_id = :tenant_id AND id = :task_id AND status = :expected
RETURNING id
"""

_CANCEL_MANY = f"""
WITH given AS (
    SELECT * FROM unnest(:task_ids::int[], :change_ids::text[]) AS x(id, change_id)
), ended AS (
    UPDATE tasks t
       SET status = 'canceled', ended_at = now(), updated_at = now(), revision = t.revision + 1
      FROM given g
     WHERE t.tenant_id = :tenant_id AND t.id = g.id AND t.status IN {sql_list(OPEN_TASKS)}
    RETURNING t.id, t.revision, g.change_id
)
INSERT INTO task_changes (id, tenant_id, task_id, revision, actor, run_id, kind, details)
SELECT change_id, :tenant_id, id, revision, :actor, :run_id, 'canceled', :details FROM ended
"""


async def insert_task(
    connection: Connection,
    tenant_id: str,
    *,
    title: str,
    description: str,
    owner_agent_id: str,
    created_by: str,
    parent: tuple[int, str] | None = None,
) -> int:
    """Write a draft under the tenant's next number, and return that. `parent` is a task and the step of it.

    Raises:
        LimitExceeded: The tenant has the most open tasks allowed, or has used all task numbers.
    """
    number = await connection.fetchval(_NEXT_NUMBER, tenant_id=tenant_id, most_number=MAX_TASK_ID)
    if number is None:
        raise LimitExceeded("There are no more task numbers in this tenant.")
    if await connection.fetchval(_COUNT_OPEN, tenant_id=tenant_id) >= MAX_OPEN_TASKS:
        raise LimitExceeded(
            f"There are {MAX_OPEN_TASKS} open tasks, which is the most. Complete or cancel those that are not needed."
        )
    parent_task_id, parent_step_id = parent or (None, None)
    await connection.execute(
        _INSERT,
        tenant_id=tenant_id,
        number=number,
        title=title,
        description=description,
        owner_agent_id=owner_agent_id,
        created_by=created_by,
        parent_task_id=parent_task_id,
        parent_step_id=parent_step_id,
    )
    return number


async def lock_tree(connection: Connection, tenant_id: str, task_id: int, *, wait: bool = True) -> bool:
    """Lock the tree of a task until the transaction ends.

    False if there is no such task; without `wait` also if another transaction holds the lock.
    """
    lock = _LOCK_TREE.format(others="" if wait else "SKIP LOCKED")
    return await connection.fetchval(lock, tenant_id=tenant_id, task_id=task_id) is not None


async def find_task(connection: Connection, tenant_id: str, task_id: int) -> TaskView | None:
    """Return a task with its steps and resources, or None."""
    row = await connection.fetchrow(_FIND, tenant_id=tenant_id, task_id=task_id)
    return None if row is None else TaskView.model_validate(_fields(row))


async def list_ancestors(connection: Connection, tenant_id: str, task_id: int) -> list[tuple[int, str]]:
    """Return a task's ancestors with their owners, its parent first."""
    return [
        (row["id"], row["owner_agent_id"])
        for row in await connection.fetch(_ANCESTORS, tenant_id=tenant_id, task_id=task_id)
    ]


async def list_open_descendants(connection: Connection, tenant_id: str, task_id: int) -> list[int]:
    """Return all open descendants of a task."""
    return [row["id"] for row in await connection.fetch(_OPEN_DESCENDANTS, tenant_id=tenant_id, task_id=task_id)]


async def list_tasks(
    connection: Connection,
    tenant_id: str,
    *,
    status: TaskStatus | None = None,
    owner_agent_id: str | None = None,
    parent_task_id: int | None = None,
    before: int | None = None,
    limit: int,
) -> list[TaskSummary]:
    """Return tasks, newest first, with numbers below `before`."""
    given = {"status": status, "owner_agent_id": owner_agent_id, "parent_task_id": parent_task_id, "before": before}
    values = {name: value for name, value in given.items() if value is not None}
    query = _LIST.format(filters="".join(f" AND {_CONDITIONS[name]}" for name in values))
    rows = await connection.fetch(query, tenant_id=tenant_id, **values, limit=limit)
    return [TaskSummary.model_validate(_fields(row)) for row in rows]


async def set_fields(
    connection: Connection, tenant_id: str, task_id: int, *, title: str, description: str, owner_agent_id: str
) -> None:
    """Set title, description and owner of a task."""
    await connection.execute(
        _SET_FIELDS,
        tenant_id=tenant_id,
        task_id=task_id,
        title=title,
        description=description,
        owner_agent_id=owner_agent_id,
    )


async def set_active(connection: Connection, tenant_id: str, task_id: int) -> bool:
    """Make a draft active and due at once. False if it is no draft."""
    return await connection.fetchval(_SET_ACTIVE, tenant_id=tenant_id, task_id=task_id) is not None


async def end_task(
    connection: Connection,
    tenant_id: str,
    task_id: int,
    status: TaskStatus,
    *,
    outcome: str | None,
    expected: TaskStatus,
) -> bool:
    """Give a task its final status. False if its status is not `expected`."""
    return (
        await connection.fetchval(
            _END, tenant_id=tenant_id, task_id=task_id, status=status, outcome=outcome, expected=expected
        )
        is not None
    )


async def cancel_descendants(
    connection: Connection,
    tenant_id: str,
    task_ids: Sequence[int],
    *,
    actor: str,
    run_id: str | None,
    details: Mapping[str, Any],
) -> None:
    """Cancel open tasks of a locked tree, and record the change of each."""
    changes = [new_id("tch") for _ in task_ids]
    await connection.execute(
        _CANCEL_MANY,
        tenant_id=tenant_id,
        task_ids=list(task_ids),
        change_ids=changes,
        actor=actor,
        run_id=run_id,
        details=dict(details),
    )


def _fields(row: Row) -> dict[str, Any]:
    return {**row, "work_at": row["next_at"], "waiting_for": describe_waits(row["awaits"]) or None}
