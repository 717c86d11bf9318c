"""A message becomes a run: the first guarded statement of its life.

Lock order everywhere: a thread's row first, then rows of its runs. So no two transitions wait for each other.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from nova_workers.contracts.runs import Accepted, Submission
from nova_workers.ids import new_id
from nova_workers.ledger.database import Connection, Row

__all__ = [
    "agent_deleted_at",
    "find_idempotent",
    "insert_run",
    "insert_run_on_new_thread",
    "interrupt_active",
    "lock_thread",
    "take_idempotency_key",
    "why_no_thread",
]

# $1 run, $2 tenant, $3 thread, $4.. the message. One statement takes the next place in line and the run in it:
# the thread's row lock makes places and commits happen in one order.
_INSERT_RUN = """
WITH thread AS (
    UPDATE threads t
       SET next_seq = t.next_seq + 1, updated_at = now()
      FROM agents a
     WHERE t.id = $3 AND t.tenant_id = $2 AND t.deleted_at IS NULL
       AND a.tenant_id = t.tenant_id AND a.id = t.agent_id AND a.deleted_at IS NULL
    RETURNING t.id, t.tenant_id, t.agent_id, t.next_seq - 1 AS seq
)
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, on_busy, queue, source, model, max_turns,
                  meta, parent_run_id, traceparent, front, priority, trigger_id)
SELECT $1, tenant_id, id, agent_id, seq, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15
  FROM thread
RETURNING id, thread_id, agent_id, seq, queue, created_at
"""

# As above, with the thread made in the same statement. $3 is the new thread's id, $16 its agent.
_INSERT_RUN_ON_NEW_THREAD = """
WITH thread AS (
    INSERT INTO threads (id, tenant_id, agent_id, next_seq)
    SELECT $3, a.tenant_id, a.id, 2
      FROM agents a
     WHERE a.tenant_id = $2 AND a.id = $16 AND a.deleted_at IS NULL
    RETURNING id, tenant_id, agent_id
)
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, on_busy, queue, source, model, max_turns,
                  meta, parent_run_id, traceparent, front, priority, trigger_id)
SELECT $1, tenant_id, id, agent_id, 1, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15
  FROM thread
RETURNING id, thread_id, agent_id, seq, queue, created_at
"""

# An expired key is taken over; a living one leaves no row. A submit in flight with the same key is waited for.
_TAKE_KEY = """
INSERT INTO idempotency_keys AS k (tenant_id, key, run_id, body_hash, expires_at)
VALUES ($1, $2, $3, $4, now() + $5)
ON CONFLICT (tenant_id, key) DO UPDATE
   SET run_id = EXCLUDED.run_id, body_hash = EXCLUDED.body_hash, expires_at = EXCLUDED.expires_at
 WHERE k.expires_at <= now()
RETURNING run_id
"""

_FIND_KEY = """
SELECT k.body_hash, r.id, r.thread_id, r.agent_id, r.seq, r.queue, r.created_at
  FROM idempotency_keys k JOIN runs r ON r.id = k.run_id
 WHERE k.tenant_id = $1 AND k.key = $2
"""

_LOCK_THREAD = "SELECT id FROM threads WHERE id = $2 AND tenant_id = $1 AND deleted_at IS NULL FOR UPDATE"

# The one that runs or waits, else one that was begun and stands in line again, else the first in line.
_BUSY_RUN = """
SELECT id
  FROM runs
 WHERE thread_id = $1 AND status IN ('queued', 'running', 'waiting')
 ORDER BY status IN ('running', 'waiting') DESC, attempt > 0 DESC, seq
 LIMIT 1
"""

# What an interrupt stops: a run that runs or waits, or one that was begun and stands in line again.
_INTERRUPT = """
UPDATE runs
   SET cancel_requested_at = COALESCE(cancel_requested_at, now()),
       cancel_reason = COALESCE(cancel_reason, 'interrupt')
 WHERE thread_id = $1 AND (status IN ('running', 'waiting') OR (status = 'queued' AND attempt > 0))
RETURNING id
"""

_DELETED_AT = "SELECT deleted_at FROM agents WHERE tenant_id = $1 AND id = $2"

_WHY = """
SELECT t.deleted_at IS NOT NULL AS thread_deleted, t.agent_id
  FROM threads t WHERE t.id = $2 AND t.tenant_id = $1
"""


async def insert_run(
    connection: Connection, submission: Submission, run_id: str, *, front: bool = False
) -> Accepted | None:
    """Put a run at the end of its thread's line. None where there is no such thread, or no such agent."""
    row = await connection.fetchrow(_INSERT_RUN, *_arguments(submission, run_id, submission.thread_id, front))
    return _accepted(row)


async def insert_run_on_new_thread(connection: Connection, submission: Submission, run_id: str) -> Accepted | None:
    """Make a thread with the run as its first. None where there is no such agent."""
    row = await connection.fetchrow(
        _INSERT_RUN_ON_NEW_THREAD,
        *_arguments(submission, run_id, new_id("thr"), front=False),
        submission.agent_id,
    )
    return _accepted(row)


async def take_idempotency_key(connection: Connection, submission: Submission, run_id: str, ttl_s: float) -> bool:
    """Bind the submission's key to a run. False where a living key is bound to another."""
    taken = await connection.fetchval(
        _TAKE_KEY,
        submission.tenant_id,
        submission.idempotency_key,
        run_id,
        submission.body_hash,
        timedelta(seconds=ttl_s),
    )
    return taken is not None


async def find_idempotent(connection: Connection, tenant_id: str, key: str) -> tuple[bytes, Accepted] | None:
    """Return the body's hash and the run that a key is bound to."""
    row = await connection.fetchrow(_FIND_KEY, tenant_id, key)
    if row is None:
        return None
    accepted = Accepted(
        run_id=row["id"],
        thread_id=row["thread_id"],
        agent_id=row["agent_id"],
        seq=row["seq"],
        queue=row["queue"],
        created_at=row["created_at"],
        replayed=True,
    )
    return row["body_hash"], accepted


async def lock_thread(connection: Connection, tenant_id: str, thread_id: str) -> str | None:
    """Hold a thread's line until the transaction ends, and return the run that makes it busy, if any.

    Two statements on purpose: the second sees what was committed while the first waited for the lock.
    """
    if await connection.fetchval(_LOCK_THREAD, tenant_id, thread_id) is None:
        return None
    return await connection.fetchval(_BUSY_RUN, thread_id)


async def interrupt_active(connection: Connection, thread_id: str) -> str | None:
    """Ask the active run of a locked thread to stop, and return its id."""
    return await connection.fetchval(_INTERRUPT, thread_id)


async def agent_deleted_at(connection: Connection, tenant_id: str, agent_id: str | None) -> datetime | None:
    """Return when an agent was deleted, in UTC, to explain a refusal. None where it is none or was not."""
    return await connection.fetchval(_DELETED_AT, tenant_id, agent_id)


async def why_no_thread(connection: Connection, tenant_id: str, thread_id: str) -> Row | None:
    """Return ``thread_deleted`` and ``agent_id`` of a thread, to explain a refusal."""
    return await connection.fetchrow(_WHY, tenant_id, thread_id)


def _arguments(submission: Submission, run_id: str, thread_id: str | None, front: bool) -> tuple[object, ...]:
    return (
        run_id,
        submission.tenant_id,
        thread_id,
        list(submission.content),
        submission.on_busy,
        submission.queue,
        submission.source,
        submission.model,
        submission.max_turns,
        dict(submission.metadata),
        submission.parent_run_id,
        submission.traceparent,
        front,
        submission.priority,
        submission.trigger_id,
    )


def _accepted(row: Row | None) -> Accepted | None:
    if row is None:
        return None
    return Accepted(
        run_id=row["id"],
        thread_id=row["thread_id"],
        agent_id=row["agent_id"],
        seq=row["seq"],
        queue=row["queue"],
        created_at=row["created_at"],
    )
