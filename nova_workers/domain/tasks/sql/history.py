"""The append-only history of tasks: each change is one revision of its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_workers.base.ids import new_id
from nova_workers.contracts.http.tasks import TaskChangeView
from nova_workers.ledger.database import Connection

# A changed task is worked on again, whatever it was parked for: at once with `wake`, else at its next time.
_RECORD = """
WITH touched AS (
    UPDATE tasks t
       SET revision = t.revision + 1, updated_at = now(), idle_invocations = 0, parked_reason = NULL,
           work_at = CASE WHEN t.status <> 'active' THEN NULL
                          WHEN :wake THEN now()
                          ELSE COALESCE(t.work_at, now() + n.work_every_s * interval '1 second') END
      FROM tenants n
     WHERE t.tenant_id = :tenant_id AND t.id = :task_id AND n.id = t.tenant_id
    RETURNING t.revision
)
INSERT INTO task_changes (id, tenant_id, task_id, revision, actor, run_id, kind, details)
SELECT :change_id, :tenant_id, :task_id, revision, :actor, :run_id, :kind, :details FROM touched
"""

_LIST = """
SELECT id, task_id, revision, actor, run_id, kind, details, created_at
  FROM task_changes
 WHERE tenant_id = :tenant_id AND task_id = :task_id AND (:before::int IS NULL OR revision < :before)
 ORDER BY revision DESC
 LIMIT :limit
"""


async def record_change(
    connection: Connection,
    tenant_id: str,
    task_id: int,
    kind: str,
    details: Mapping[str, Any],
    *,
    actor: str,
    run_id: str | None,
    wake: bool,
) -> None:
    """Add a change to a locked task's history and unpark the task; with `wake` an active one is due at once."""
    await connection.execute(
        _RECORD,
        tenant_id=tenant_id,
        task_id=task_id,
        change_id=new_id("tch"),
        actor=actor,
        run_id=run_id,
        kind=kind,
        details=dict(details),
        wake=wake,
    )


async def list_changes(
    connection: Connection, tenant_id: str, task_id: int, *, before: int | None, limit: int
) -> list[TaskChangeView]:
    """Return a task's changes, newest first, from before the revision `before`."""
    rows = await connection.fetch(_LIST, tenant_id=tenant_id, task_id=task_id, before=before, limit=limit)
    return [TaskChangeView(**row) for row in rows]
