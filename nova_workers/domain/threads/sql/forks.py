"""The tree of threads that were forked from each other."""

from __future__ import annotations

from nova_workers.contracts.http.overview.forks import MAX_FORKS, ForkedThread, ForkTreeView
from nova_workers.domain.threads.sql.records import OPENING
from nova_workers.ledger.database import Connection

# Up to the first thread by the turns that threads continue from, then down to every thread that continues from a turn
# of one that was found. Each step uses an index (a turn's id; the turns of a thread; the forks of a turn), and each
# thread is found once, since it continues from one turn. A recursive result comes level by level and only as far as it
# is read, so no step orders it, and the limits end the walk. The way up comes first: the thread itself is always shown.
_TREE = f"""
WITH RECURSIVE ascent AS (
    SELECT t.id, t.forked_from_turn_id, 0 AS height
      FROM threads t
     WHERE t.tenant_id = :tenant_id AND t.id = :thread_id
    UNION ALL
    SELECT p.id, p.forked_from_turn_id, a.height + 1
      FROM ascent a
      JOIN turns f ON f.id = a.forked_from_turn_id
      JOIN threads p ON p.id = f.thread_id AND p.tenant_id = :tenant_id
), up AS MATERIALIZED (
    SELECT * FROM ascent LIMIT :limit
), down AS (
    (SELECT id, 0 AS distance FROM up ORDER BY height DESC LIMIT 1)
    UNION ALL
    SELECT c.id, d.distance + 1
      FROM down d
      JOIN turns f ON f.thread_id = d.id
      JOIN threads c ON c.forked_from_turn_id = f.id AND c.tenant_id = :tenant_id
), others AS MATERIALIZED (
    SELECT * FROM down WHERE id NOT IN (SELECT id FROM up) LIMIT :limit
), found AS MATERIALIZED (
    SELECT id, (SELECT max(height) FROM up) - height AS distance, false AS other, height AS place FROM up
    UNION ALL
    SELECT id, distance, true, distance FROM others
), shown AS MATERIALIZED (
    SELECT id, distance FROM found ORDER BY other, place, id LIMIT :limit - 1
)
SELECT t.id, t.agent_id, t.title,
       CASE WHEN f.thread_id IN (SELECT id FROM shown) THEN f.thread_id END AS parent_thread_id,
       t.forked_from_turn_id AS fork_turn_id, f.depth AS fork_depth,
       (SELECT max(u.depth) FROM turns u WHERE u.thread_id = t.id) AS head_depth, t.active_run_id,
       t.deleted_at IS NOT NULL AS deleted, t.updated_at, {OPENING} AS opening,
       (SELECT count(*) FROM found) AS found
  FROM shown d
  JOIN threads t ON t.id = d.id
  LEFT JOIN turns f ON f.id = t.forked_from_turn_id
 ORDER BY d.distance, t.id
"""


async def read_fork_tree(connection: Connection, tenant_id: str, thread_id: str) -> ForkTreeView:
    """Return the threads that were forked from each other and of which this is one; deleted ones without their texts.

    The caller has checked that the thread exists.
    """
    rows = await connection.fetch(_TREE, tenant_id=tenant_id, thread_id=thread_id, limit=MAX_FORKS + 1)
    items = [
        ForkedThread.model_validate({name: value for name, value in row.items() if name != "found"}) for row in rows
    ]
    hidden = {"title": None, "opening": None}
    return ForkTreeView(
        items=[item.model_copy(update=hidden) if item.deleted else item for item in items],
        complete=all(row["found"] <= MAX_FORKS for row in rows),
    )
