"""Reads the messages of an agent's thread."""

from __future__ import annotations

from nova_workers.ledger.database import Connection, Row

# The newest messages of a thread, oldest first. Summaries of compactions are not part of what was said.
_LATEST = """
SELECT m.turn_id, m.seq, m.role, m.content, m.created_at, COALESCE(m.run_id, t.run_id) AS run_id
  FROM (SELECT t.id, t.run_id, t.depth
          FROM turns t
         WHERE t.tenant_id = :tenant_id AND t.thread_id = :thread_id AND t.type = 'normal'
         ORDER BY t.depth DESC
         LIMIT :limit) t
  JOIN messages m ON m.turn_id = t.id
 ORDER BY t.depth DESC, m.seq DESC
 LIMIT :limit
"""


async def latest_messages(connection: Connection, tenant_id: str, thread_id: str, *, limit: int) -> list[Row]:
    """Return the newest messages of a thread, oldest first, with their runs.

    Rows have `turn_id`, `seq`, `role`, `content` (blocks), `created_at` and `run_id`.
    """
    rows = await connection.fetch(_LATEST, tenant_id=tenant_id, thread_id=thread_id, limit=limit)
    return rows[::-1]
