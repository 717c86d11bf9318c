"""Moves a run that does not move by itself, as a person asks: rings for it, takes it back, or lets it end as failed.

Each is guarded: a run under a live lease is its worker's alone, and is changed by none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from nova_workers.base.vocabulary import RunStatus
from nova_workers.contracts.runs import CancelRequest, Doorbell
from nova_workers.domain.runs.sql.leases import EXPIRED, recovering
from nova_workers.ledger.database import Connection

_STATE = f"""
SELECT r.status, r.attempt > 0 AS begun, COALESCE(NOT {EXPIRED}, false) AS leased, r.worker_id, r.lease_expires_at,
       r.cancel_requested_at IS NOT NULL AS ends
  FROM runs r
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
"""

# A held run has no doorbell: its next try is due, and the reconciler lets it, or one with the same outage, try.
_RING = """
UPDATE runs r
   SET rang_at = CASE WHEN r.hold IS NULL OR r.held_until IS NULL THEN now() ELSE r.rang_at END,
       held_until = CASE WHEN r.hold IS NOT NULL AND r.held_until IS NOT NULL THEN now() ELSE r.held_until END
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id AND r.status = 'queued'
RETURNING r.id AS run_id, r.thread_id, r.queue,
          NOT EXISTS (SELECT FROM runs o WHERE o.thread_id = r.thread_id AND o.status = 'running') AS is_free
"""

_TAKE_BACK = recovering(f"r.tenant_id = :tenant_id AND r.id = :run_id AND {EXPIRED}")

# Marked like a canceled run, so each release's workers end it at the next claim; the text of the error makes it a
# failure.
_FAIL = """
UPDATE runs r
   SET cancel_requested_at = now(), cancel_reason = 'cancel', error_message = :why, rang_at = now()
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id AND r.status IN ('queued', 'waiting') AND r.attempt > 0
   AND r.cancel_requested_at IS NULL
RETURNING r.id AS run_id, r.thread_id, r.queue, r.status
"""


@dataclass(frozen=True, slots=True)
class MoveState:
    """What decides whether a run may be moved.

    Attributes:
        begun: Whether a worker has claimed it before.
        leased: Whether a worker holds it now.
        ends: Whether its end was asked for already.
    """

    status: RunStatus
    begun: bool
    leased: bool
    worker_id: str | None
    ends: bool


async def read_move_state(connection: Connection, tenant_id: str, run_id: str) -> MoveState | None:
    """Return the state of a tenant's run, or None."""
    row = await connection.fetchrow(_STATE, tenant_id=tenant_id, run_id=run_id)
    if row is None:
        return None
    return MoveState(row["status"], row["begun"], row["leased"], row["worker_id"], row["ends"])


async def ring_again(connection: Connection, tenant_id: str, run_id: str) -> tuple[Doorbell, bool] | None:
    """Record a doorbell for a queued run, and let a held one try now.

    Returns:
        The doorbell, and whether no run of the conversation executes; None if the run is not queued.
    """
    row = await connection.fetchrow(_RING, tenant_id=tenant_id, run_id=run_id)
    return None if row is None else (Doorbell(row["run_id"], row["thread_id"], row["queue"]), row["is_free"])


async def take_back(connection: Connection, tenant_id: str, run_id: str) -> Doorbell | None:
    """Requeue a running run whose lease has expired, with a loss. None if it has none, or others take it back."""
    rows = await connection.fetch(_TAKE_BACK, tenant_id=tenant_id, run_id=run_id, limit=1)
    return Doorbell(**rows[0]) if rows else None


async def request_failure(connection: Connection, tenant_id: str, run_id: str, why: str) -> CancelRequest | None:
    """Let the next claim of a run that had begun end it as failed. None if it is held by a worker, or ends already."""
    row = await connection.fetchrow(_FAIL, tenant_id=tenant_id, run_id=run_id, why=why)
    if row is None:
        return None
    bell = Doorbell(row["run_id"], row["thread_id"], row["queue"])
    return CancelRequest(bell, ended=False, running=False, waiting=row["status"] == "waiting")
