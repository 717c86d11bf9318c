"""The thread of a task: one per task, owned by the task's owner."""

from __future__ import annotations

from nova_workers.base.ids import new_id
from nova_workers.contracts.http.tasks import TaskView
from nova_workers.ledger.database import Connection

_AGENT_EXISTS = (
    "SELECT EXISTS (SELECT FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL)"
)

# The thread of an agent that is being renamed may still have the former id.
_IS_FIT = """
SELECT EXISTS (SELECT FROM threads h JOIN agents a ON a.tenant_id = h.tenant_id AND a.id = h.agent_id
                WHERE h.tenant_id = :tenant_id AND h.id = :thread_id AND h.task_id = :task_id
                  AND COALESCE(a.renamed_to, a.id) = :agent_id AND h.deleted_at IS NULL)
"""

# A thread of a former owner becomes an ordinary thread.
_UNBIND = """
UPDATE threads SET task_id = NULL, label = CASE WHEN label = :label THEN NULL ELSE label END
 WHERE tenant_id = :tenant_id AND task_id = :task_id AND deleted_at IS NULL
"""

# Inserts nothing if another thread has the label, since users choose labels freely.
_MAKE = """
INSERT INTO threads (id, tenant_id, agent_id, title, label, task_id, origin)
SELECT :thread_id, a.tenant_id, a.id, :title, :label, :task_id, 'task'
  FROM agents a
 WHERE a.tenant_id = :tenant_id AND a.id = :agent_id AND a.deleted_at IS NULL
ON CONFLICT DO NOTHING
RETURNING id
"""

_BIND = "UPDATE tasks SET thread_id = :thread_id WHERE tenant_id = :tenant_id AND id = :task_id"


async def agent_exists(connection: Connection, tenant_id: str, agent_id: str) -> bool:
    """Return whether an agent exists and is not deleted."""
    return await connection.fetchval(_AGENT_EXISTS, tenant_id=tenant_id, agent_id=agent_id)


async def ensure_thread(connection: Connection, tenant_id: str, task: TaskView) -> str | None:
    """Return the thread of a locked task; make one if it has none, or if it is deleted or a former owner's.

    None if the owner was deleted.
    """
    owner = task.owner_agent_id
    if task.thread_id is not None and await connection.fetchval(
        _IS_FIT, tenant_id=tenant_id, thread_id=task.thread_id, agent_id=owner, task_id=task.id
    ):
        return task.thread_id
    label = f"task-{task.id}"
    await connection.execute(_UNBIND, tenant_id=tenant_id, task_id=task.id, label=label)
    made: str | None = None
    for wanted in (label, None):
        made = await connection.fetchval(
            _MAKE,
            tenant_id=tenant_id,
            thread_id=new_id("thr"),
            agent_id=owner,
            title=task.title,
            label=wanted,
            task_id=task.id,
        )
        if made is not None:
            break
    if made is not None:
        await connection.execute(_BIND, tenant_id=tenant_id, task_id=task.id, thread_id=made)
    return made
