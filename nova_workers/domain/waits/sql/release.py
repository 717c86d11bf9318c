"""Requeues waiting runs whose cancellation was requested, so that a claim ends them."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.waits.sql.questions import close_questions
from nova_workers.ledger.database import Connection

_LOCK_WAITING = """
SELECT t.id FROM threads t JOIN runs r ON r.thread_id = t.id
 WHERE r.id = ANY(:ids::text[]) AND r.status = 'waiting'
 ORDER BY t.id
   FOR UPDATE OF t
"""
_STUCK = """
SELECT id FROM runs WHERE status = 'waiting' AND cancel_requested_at IS NOT NULL ORDER BY id LIMIT :limit
"""
_RELEASE = """
WITH back AS (
    UPDATE runs r
       SET status = 'queued', queued_at = now(), rang_at = now()
     WHERE r.id = ANY(:ids::text[]) AND r.status = 'waiting' AND r.cancel_requested_at IS NOT NULL
    RETURNING r.id, r.thread_id, r.queue, r.turn_id
), freed AS (
    UPDATE threads t SET active_run_id = NULL FROM back WHERE t.id = back.thread_id AND t.active_run_id = back.id
), turn AS (
    UPDATE turns t SET status = 'running' FROM back WHERE t.id = back.turn_id
), waits AS (
    UPDATE run_waits w SET status = 'canceled', resolved_at = now() FROM back
     WHERE w.run_id = back.id AND w.status = 'open'
    RETURNING w.id, w.run_id
)
SELECT b.id, b.thread_id, b.queue, ARRAY(SELECT w.id FROM waits w WHERE w.run_id = b.id) AS waits
  FROM back b
"""

_CHILDREN = """
SELECT w.tenant_id, array_agg(w.child_run_id) AS children
  FROM runs r JOIN run_waits w ON w.run_id = r.id AND w.status = 'open'
 WHERE r.id = ANY(:ids::text[]) AND r.status = 'waiting' AND r.cancel_requested_at IS NOT NULL
   AND w.child_run_id IS NOT NULL
 GROUP BY w.tenant_id
"""


async def release_waiting(connection: Connection, run_ids: Sequence[str]) -> list[Doorbell]:
    """Requeue waiting runs whose cancellation was requested, and return their doorbells. Call it in a transaction."""
    ids = list(run_ids)
    if not await connection.fetch(_LOCK_WAITING, ids=ids):
        return []
    rows = await connection.fetch(_RELEASE, ids=ids)
    await close_questions(connection, [wait_id for row in rows for wait_id in row["waits"]])
    return [Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows]


async def find_awaited_children(connection: Connection, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return by tenant the child runs of waiting runs whose cancellation was requested."""
    rows = await connection.fetch(_CHILDREN, ids=list(run_ids))
    return {row["tenant_id"]: row["children"] for row in rows}


async def find_stuck(connection: Connection, *, limit: int) -> list[str]:
    """Return waiting runs whose cancellation was requested but not applied: the requester crashed in between."""
    return [row["id"] for row in await connection.fetch(_STUCK, limit=limit)]
