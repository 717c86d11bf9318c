"""What a restored database must not carry over: work in progress of processes that it never had.

A backup is one moment of a live fleet. Its leases belong to processes of that fleet, which may be alive, and send the
same deliveries. So a restored fleet is paused, and does nothing after runs and sends nothing outside, until an
operator resumes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from nova_workers.base.vocabulary import EFFECT_KINDS, sql_list
from nova_workers.contracts.deliveries import INBOX
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_attempts

HOLDS_DELIVERIES = "EXISTS (SELECT FROM switches s WHERE s.scope = 'fleet' AND s.holds_deliveries)"
"""Whether nothing may be sent outside, nor done after runs."""

HOLDS_SINCE = "0037"
"""The oldest schema on which all of these statements work. On those before it only `pause_fleet` does."""

# In columns that every release of the schema has.
_PAUSE = """
INSERT INTO switches (scope, tenant_id, target, reason) VALUES ('fleet', '', '', :reason)
ON CONFLICT (scope, tenant_id, target) DO UPDATE SET reason = EXCLUDED.reason
"""
_HOLD = """
INSERT INTO switches (scope, tenant_id, target, reason, holds_deliveries) VALUES ('fleet', '', '', :reason, true)
ON CONFLICT (scope, tenant_id, target) DO UPDATE SET reason = EXCLUDED.reason, holds_deliveries = true
"""

# The worker was not lost, so it counts as no loss of the run. Its next claim raises the fence.
_REQUEUE = f"""
WITH held AS (
    SELECT id AS run_id, worker_id AS holder_id FROM runs WHERE status = 'running' ORDER BY id FOR UPDATE
), back AS (
    UPDATE runs r
       SET status = 'queued', lease_expires_at = NULL, worker_id = NULL, queued_at = now(), rang_at = now()
      FROM held
     WHERE r.id = held.run_id
    RETURNING r.id, r.tenant_id, r.thread_id, r.attempt, r.claimed_at, held.holder_id
), ended AS (
    {insert_attempts("back", ended="requeued")}
), freed AS (
    UPDATE threads t SET active_run_id = NULL FROM back WHERE t.id = back.thread_id AND t.active_run_id = back.id
)
SELECT count(*)::int FROM back
"""

_RELEASE_EFFECTS = """
WITH freed AS (
    UPDATE effects SET status = 'pending', attempts = greatest(attempts - 1, 0), due_at = now() WHERE status = 'running'
    RETURNING id
)
SELECT count(*)::int FROM freed
"""

# The state stays: the next holder continues from it. The fence makes a holder of the backed-up fleet's refused.
_RELEASE_LEASES = """
WITH freed AS (
    UPDATE leases SET expires_at = now(), fence = fence + 1 RETURNING name
)
SELECT count(*)::int FROM freed
"""

# A backup of an older fleet has no tokens: its holders are known by their fence.
_HAS_TOKENS = "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'leases'::regclass AND attname = 'token_hash')"
_FORGET_TOKENS = "UPDATE leases SET token_hash = NULL"

_FORGET_WORKERS = "DELETE FROM worker_sessions"

_PENDING = f"SELECT count(*)::int FROM deliveries WHERE status = 'pending' AND target <> '{INBOX}'"

_DROP_PENDING = f"""
WITH inbox AS (
    UPDATE deliveries SET routed = true WHERE target = '{INBOX}' AND NOT routed
), ends AS (
    UPDATE effects SET status = 'done', done_at = now(), error = :error
     WHERE (kind = 'delivery' OR kind NOT IN {sql_list(EFFECT_KINDS)}) AND status = 'pending'
)
UPDATE deliveries SET status = 'failed', error = :error WHERE status = 'pending' AND target <> '{INBOX}'
"""


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was in progress in the backup: runs and effects that begin anew, leases of channels that were released."""

    runs: int
    effects: int
    leases: int
    pending_deliveries: int


async def pause_fleet(connection: Connection, reason: str) -> None:
    """Pause the fleet in a database of any release, before it is migrated."""
    await connection.execute(_PAUSE, reason=reason)


async def hold_fleet(connection: Connection, reason: str) -> None:
    """Pause the fleet, and hold deliveries too."""
    await connection.execute(_HOLD, reason=reason)


async def clear_restored(connection: Connection) -> Cleared:
    """End the work of processes that the restored fleet never had. Call it in the transaction that holds the fleet."""
    await connection.execute(_FORGET_WORKERS)
    if await connection.fetchval(_HAS_TOKENS):
        await connection.execute(_FORGET_TOKENS)
    return Cleared(
        runs=await connection.fetchval(_REQUEUE),
        effects=await connection.fetchval(_RELEASE_EFFECTS),
        leases=await connection.fetchval(_RELEASE_LEASES),
        pending_deliveries=await connection.fetchval(_PENDING),
    )


async def drop_pending_deliveries(connection: Connection, error: str) -> None:
    """Fail what the backed-up fleet had not sent outside yet. People can replay single deliveries."""
    await connection.execute(_DROP_PENDING, error=error)
