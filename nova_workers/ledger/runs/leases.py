"""Leases: renewed in one statement a process, and recovered where nobody renews."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from nova_workers.contracts.runs import CancelReason, Claim, Doorbell
from nova_workers.ledger.database import Connection
from nova_workers.ledger.runs.claim import PAUSED

__all__ = ["Renewal", "recover_expired", "renew_leases", "take_overdue_doorbells"]

# Rows of several threads are locked in the order of their ids, as in a bulk cancel: the two cannot wait for each other.
_RENEW = """
WITH mine AS (
    SELECT r.id
      FROM runs r JOIN unnest(:run_ids::text[], :fences::bigint[]) AS held(id, fence) ON r.id = held.id
        AND r.fence = held.fence
     WHERE r.status = 'running'
     ORDER BY r.id
       FOR UPDATE OF r
)
UPDATE runs r
   SET lease_expires_at = now() + :lease_ttl
  FROM mine
 WHERE r.id = mine.id AND r.status = 'running'
RETURNING r.id, r.cancel_requested_at IS NOT NULL AS canceled, r.cancel_reason
"""

# Waits for nobody: a thread or run that somebody works on at this moment is left to the next pass. So any number of
# reconcilers may work at once, and none can be part of a deadlock.
_RECOVER = """
WITH thread AS (
    SELECT t.id AS thread_id, r.id AS run_id
      FROM runs r JOIN threads t ON t.id = r.thread_id
     WHERE r.status = 'running' AND r.lease_expires_at < now()
     ORDER BY r.lease_expires_at
     LIMIT :limit
       FOR UPDATE OF t, r SKIP LOCKED
), back AS (
    UPDATE runs r
       SET status = 'queued', lease_expires_at = NULL, worker_id = NULL, losses = r.losses + 1,
           queued_at = now(), rang_at = now()
      FROM thread
     WHERE r.id = thread.run_id AND r.status = 'running' AND r.lease_expires_at < now()
    RETURNING r.id, r.thread_id, r.queue
), freed AS (
    UPDATE threads t SET active_run_id = NULL FROM back WHERE t.id = back.thread_id AND t.active_run_id = back.id
)
SELECT id, thread_id, queue FROM back
"""

# The first of each line whose doorbell is old, unless its thread is busy or paused, or it stands under a cap: those are
# found in `fairness`. And each that was canceled after it had begun, which only a claim can end, pause or not. Marked
# as rung in the same statement, so that two reconcilers do not ring twice.
_OVERDUE = f"""
WITH due AS (
    SELECT r.id
      FROM runs r
     WHERE r.status = 'queued' AND r.queue = :queue AND r.rang_at < now() - :older_than::interval
       AND (r.cancel_requested_at IS NOT NULL
            OR NOT EXISTS (SELECT 1 FROM runs o
                            WHERE o.thread_id = r.thread_id AND o.status = 'queued' AND o.seq < r.seq)
               AND NOT {PAUSED}
               AND NOT EXISTS (SELECT 1 FROM tenants w WHERE w.id = r.tenant_id AND w.max_running IS NOT NULL)
               AND NOT EXISTS (SELECT 1 FROM agents a
                                WHERE a.tenant_id = r.tenant_id AND a.id = r.agent_id AND a.max_running IS NOT NULL))
       AND NOT EXISTS (SELECT 1 FROM runs o WHERE o.thread_id = r.thread_id AND o.status = 'running')
     ORDER BY r.rang_at
     LIMIT :limit
       FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs r
   SET rang_at = now()
  FROM due
 WHERE r.id = due.id
RETURNING r.id, r.thread_id, r.queue
"""


@dataclass(frozen=True, slots=True)
class Renewal:
    """A lease that was renewed, and the cancel request that may have been missed."""

    run_id: str
    cancel_reason: CancelReason | None


async def renew_leases(connection: Connection, claims: Sequence[Claim], lease_ttl_s: float) -> list[Renewal]:
    """Renew all leases of a process. A claim that is not in the answer is lost."""
    rows = await connection.fetch(
        _RENEW,
        run_ids=[claim.run_id for claim in claims],
        fences=[claim.fence for claim in claims],
        lease_ttl=timedelta(seconds=lease_ttl_s),
    )
    return [Renewal(row["id"], (row["cancel_reason"] or "cancel") if row["canceled"] else None) for row in rows]


async def recover_expired(connection: Connection, *, limit: int) -> list[Doorbell]:
    """Put runs whose worker went silent back to the front of their line, and return whom to ring for."""
    rows = await connection.fetch(_RECOVER, limit=limit)
    return [Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows]


async def take_overdue_doorbells(
    connection: Connection, *, queue: str, older_than_s: float, limit: int
) -> list[Doorbell]:
    """Return queued runs for which nobody rang of late, and mark them as rung."""
    rows = await connection.fetch(_OVERDUE, older_than=timedelta(seconds=older_than_s), limit=limit, queue=queue)
    return [Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows]
