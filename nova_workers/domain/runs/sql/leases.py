"""Leases: renewed in one statement per process, and recovered after they expire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from nova_workers.contracts.runs import CancelReason, Claim, Doorbell
from nova_workers.domain.runs.sql.claim import PAUSED
from nova_workers.domain.runs.sql.filters import IS_RUNNING
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_attempts

# Renews leases that are still this process's, by fence. Rows are locked in the order of their ids, as in a bulk cancel,
# so the two cannot deadlock.
_RENEW = f"""
WITH mine AS (
    SELECT r.id
      FROM runs r JOIN unnest(:run_ids::text[], :fences::bigint[]) AS held(id, fence) ON r.id = held.id
        AND r.fence = held.fence
     WHERE {IS_RUNNING}
     ORDER BY r.id
       FOR UPDATE OF r
)
UPDATE runs r
   SET lease_expires_at = now() + :lease_ttl
  FROM mine
 WHERE r.id = mine.id AND {IS_RUNNING}
RETURNING r.id, r.cancel_requested_at IS NOT NULL AS canceled, r.cancel_reason
"""

_IS_HELD = f"SELECT EXISTS (SELECT FROM runs r WHERE id = :run_id AND fence = :fence AND {IS_RUNNING})"

EXPIRED = "r.lease_expires_at < now()"


def recovering(lost: str) -> str:
    """Return the statement that requeues the running runs ``r`` that are lost by a condition.

    Threads and runs that another transaction has locked are left to the next pass (SKIP LOCKED), so any number of
    processes can recover at once without a deadlock. Late writes of the old worker are refused: the run is not
    `running`, and the next claim raises the fence.
    """
    return f"""
WITH thread AS (
    SELECT t.id AS thread_id, r.id AS run_id, r.worker_id AS holder_id
      FROM runs r JOIN threads t ON t.id = r.thread_id
     WHERE r.status = 'running' AND {lost}
     ORDER BY r.lease_expires_at
     LIMIT :limit
       FOR UPDATE OF t, r SKIP LOCKED
), back AS (
    UPDATE runs r
       SET status = 'queued', lease_expires_at = NULL, worker_id = NULL, losses = r.losses + 1,
           queued_at = now(), rang_at = now()
      FROM thread
     WHERE r.id = thread.run_id AND r.status = 'running' AND {lost}
    RETURNING r.id, r.tenant_id, r.thread_id, r.queue, r.attempt, r.claimed_at, thread.holder_id
), ended AS (
    {insert_attempts("back", ended="lost")}
), freed AS (
    UPDATE threads t SET active_run_id = NULL FROM back WHERE t.id = back.thread_id AND t.active_run_id = back.id
)
SELECT id AS run_id, thread_id, queue FROM back
"""


_RECOVER = recovering(EXPIRED)

# The first queued run of each thread whose doorbell is old, unless its thread is busy, it is paused, or it is under a
# cap (`fairness` finds those). Also each canceled run, which only a claim can end, paused or not. The same statement
# updates `rang_at`, so two reconcilers do not ring twice. `infinity` is in the words of the index of this statement.
_OVERDUE = f"""
WITH due AS (
    SELECT r.id
      FROM runs r
     WHERE r.status = 'queued' AND r.queue = :queue AND r.rang_at < now() - :older_than::interval
       AND r.rang_at < 'infinity'
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
RETURNING r.id AS run_id, r.thread_id, r.queue
"""


@dataclass(frozen=True, slots=True)
class Renewal:
    """A renewed lease, and a cancel request whose notification may have been missed."""

    run_id: str
    cancel_reason: CancelReason | None


async def renew_leases(connection: Connection, claims: Sequence[Claim], lease_ttl_s: float) -> list[Renewal]:
    """Renew all leases of a process. Claims that are not in the answer are lost."""
    rows = await connection.fetch(
        _RENEW,
        run_ids=[claim.run_id for claim in claims],
        fences=[claim.fence for claim in claims],
        lease_ttl=timedelta(seconds=lease_ttl_s),
    )
    return [Renewal(row["id"], (row["cancel_reason"] or "cancel") if row["canceled"] else None) for row in rows]


async def is_held(connection: Connection, run_id: str, fence: int) -> bool:
    """Return whether a claim still holds its run."""
    held: bool = await connection.fetchval(_IS_HELD, run_id=run_id, fence=fence)
    return held


async def recover_expired(connection: Connection, *, limit: int) -> list[Doorbell]:
    """Requeue runs whose lease expired, in front of their thread's queue, and return their doorbells."""
    rows = await connection.fetch(_RECOVER, limit=limit)
    return [Doorbell(**row) for row in rows]


async def take_overdue_doorbells(
    connection: Connection, *, queue: str, older_than_s: float, limit: int
) -> list[Doorbell]:
    """Return queued runs without a recent doorbell, and record one for each."""
    rows = await connection.fetch(_OVERDUE, older_than=timedelta(seconds=older_than_s), limit=limit, queue=queue)
    return [Doorbell(**row) for row in rows]
