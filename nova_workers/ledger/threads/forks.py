"""The tree of threads that were forked from each other."""

from __future__ import annotations

from nova_workers.contracts.http.overview.forks import MAX_FORKS, ForkedThread, ForkTreeView
from nova_workers.contracts.http.wire import OPENING_CHARS
from nova_workers.ledger.database import Connection

__all__ = ["read_fork_tree"]

# Up to the first thread by the turns that threads continue from, then down to every thread that continues from a turn
# of one that was found. Each step uses an index (a turn's id; the turns of a thread; the forks of a turn), and each
# thread is found once, since it continues from one turn. Threads of a tree are of one tenant.
_TREE = f"""
WITH RECURSIVE up AS (
    SELECT t.id, t.forked_from_turn_id, 0 AS distance
      FROM threads t
     WHERE t.tenant_id = :tenant_id AND t.id = :thread_id
    UNION ALL
    SELECT p.id, p.forked_from_turn_id, u.distance + 1
      FROM up u
      JOIN turns f ON f.id = u.forked_from_turn_id
      JOIN threads p ON p.id = f.thread_id
), down AS (
    (SELECT id, NULL::text COLLATE "C" AS parent_thread_id, 0 AS distance FROM up ORDER BY up.distance DESC LIMIT 1)
    UNION ALL
    SELECT c.id, d.id, d.distance + 1
      FROM down d
      JOIN turns f ON f.thread_id = d.id
      JOIN threads c ON c.forked_from_turn_id = f.id
), found AS (
    SELECT * FROM down ORDER BY distance, id LIMIT :limit
)
SELECT t.id, t.agent_id, t.title, d.parent_thread_id, t.forked_from_turn_id AS fork_turn_id, f.depth AS fork_depth,
       (SELECT max(u.depth) FROM turns u WHERE u.thread_id = t.id) AS head_depth, t.active_run_id,
       t.deleted_at IS NOT NULL AS deleted, t.updated_at,
       (SELECT left(jsonb_path_query_first(r.content, '$[*] ? (@.type == "text").text') #>> '{{}}', {OPENING_CHARS})
          FROM runs r WHERE r.thread_id = t.id ORDER BY r.seq LIMIT 1) AS opening
  FROM found d
  JOIN threads t ON t.id = d.id
  LEFT JOIN turns f ON f.id = t.forked_from_turn_id
 ORDER BY d.distance, t.id
"""


async def read_fork_tree(connection: Connection, tenant_id: str, thread_id: str) -> ForkTreeView:
    """Return the threads that were forked from each other and of which this is one; deleted ones without their texts.

    The caller has checked that the thread exists.
    """
    rows = await connection.fetch(_TREE, tenant_id=tenant_id, thread_id=thread_id, limit=MAX_FORKS + 1)
    items = [ForkedThread.model_validate(dict(row)) for row in rows[:MAX_FORKS]]
    hidden = {"title": None, "opening": None}
    return ForkTreeView(
        items=[item.model_copy(update=hidden) if item.deleted else item for item in items],
        complete=len(rows) <= MAX_FORKS,
    )
