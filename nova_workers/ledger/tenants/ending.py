"""The end of a tenant: one statement makes it unusable, and its rows are deleted in bounded batches after that.

Threads go first, by the purge that deletes any thread in slices, and with them all rows that hang under them by foreign
keys. Then the other tables, children before parents. The row of the tenant goes last, so a process that dies in between
leaves a tenant that the next tick goes on with.
"""

from __future__ import annotations

from typing import Final

from nova_workers.ledger.database import Connection

__all__ = [
    "SWEPT",
    "begin_end",
    "ending_tenants",
    "finish_end",
    "has_threads",
    "mark_threads",
    "purgeable_threads",
    "streamed_runs",
    "sweep",
]

# Ends of tenants come one after the other: of two operators who end each other's tenant one is refused.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('nova tenants end', 0))"

_HAS_OTHER_OPERATOR = """
SELECT EXISTS (SELECT FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
                WHERE k.tenant_id <> :tenant_id AND t.ending_at IS NULL AND 'operator' = ANY(k.scopes)
                  AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()))
"""

# Without its keys nobody can ask for it; under its pause nothing new starts; its triggers are not due any more.
_BEGIN = """
WITH ended AS (
    UPDATE tenants SET ending_at = now() WHERE id = :tenant_id AND ending_at IS NULL RETURNING id
), keys AS (
    DELETE FROM api_keys k USING ended WHERE k.tenant_id = ended.id
), triggers AS (
    UPDATE triggers t SET next_slot_at = NULL, next_fire_at = NULL FROM ended WHERE t.tenant_id = ended.id
), paused AS (
    INSERT INTO switches (scope, tenant_id, target, reason) SELECT 'tenant', id, '', 'The tenant was ended.' FROM ended
    ON CONFLICT (scope, tenant_id, target) DO UPDATE SET reason = EXCLUDED.reason
)
SELECT id FROM ended
"""

_ENDING = "SELECT id FROM tenants WHERE ending_at IS NOT NULL ORDER BY ending_at"

_PURGEABLE = """
SELECT id FROM threads WHERE tenant_id = :tenant_id AND purge_at IS NULL ORDER BY id LIMIT :limit
"""

# Those whose events may still be in Redis: their life there is an hour after the last one.
_STREAMED = """
SELECT id FROM runs
 WHERE thread_id = ANY(:thread_ids::text[]) AND (finished_at IS NULL OR finished_at > now() - interval '2 hours')
"""

_MARK = """
UPDATE threads SET deleted_at = COALESCE(deleted_at, now()), purge_at = now(), head_turn_id = NULL
 WHERE id = ANY(:thread_ids::text[])
"""

_HAS_THREADS = "SELECT EXISTS (SELECT FROM threads WHERE tenant_id = :tenant_id)"

_FINISH = """
DELETE FROM tenants WHERE id = :tenant_id AND ending_at IS NOT NULL
   AND NOT EXISTS (SELECT FROM threads WHERE tenant_id = :tenant_id)
RETURNING id
"""


SWEPT: Final = (
    "trigger_firings",
    "task_steps",
    "task_resources",
    "task_changes",
    "skill_files",
    "agent_versions",
    "webhooks",
    "upkeep_cursors",
    "triggers",
    "tasks",
    "skills",
    "sent_files",
    "secrets",
    "notes",
    "memories",
    "api_keys",
    "agents",
    "usage",
    "switches",
    "idempotency_keys",
    "deliveries",
)
"""Tables that are deleted from by tenant, children first. The others lose their rows with the threads; a test compares
with the models."""

_SWEEP: Final = {
    table: f"""
DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE tenant_id = :tenant_id LIMIT :limit))
"""
    for table in SWEPT
}


async def begin_end(connection: Connection, tenant_id: str) -> bool:
    """Make a tenant unusable, for good. Must be called in a transaction.

    Returns:
        False where no other tenant would have a key of an operator. Of a tenant that was ended before, True.
    """
    await connection.execute(_ALONE)
    if not await connection.fetchval(_HAS_OTHER_OPERATOR, tenant_id=tenant_id):
        return False
    await connection.fetchval(_BEGIN, tenant_id=tenant_id)
    return True


async def ending_tenants(connection: Connection) -> list[str]:
    """Return the tenants that were ended and still have rows, the one that was ended first first."""
    return [row["id"] for row in await connection.fetch(_ENDING)]


async def purgeable_threads(connection: Connection, tenant_id: str, *, limit: int) -> list[str]:
    """Return threads that the purge does not know of yet."""
    return [row["id"] for row in await connection.fetch(_PURGEABLE, tenant_id=tenant_id, limit=limit)]


async def streamed_runs(connection: Connection, thread_ids: list[str]) -> list[str]:
    """Return runs of threads whose live events may still be kept."""
    return [row["id"] for row in await connection.fetch(_STREAMED, thread_ids=thread_ids)]


async def mark_threads(connection: Connection, thread_ids: list[str]) -> None:
    """Have the purge delete threads."""
    await connection.execute(_MARK, thread_ids=thread_ids)


async def has_threads(connection: Connection, tenant_id: str) -> bool:
    """Whether any thread of a tenant is left."""
    return await connection.fetchval(_HAS_THREADS, tenant_id=tenant_id)


async def sweep(connection: Connection, tenant_id: str, table: str, *, limit: int) -> int:
    """Delete rows of a tenant from one of `SWEPT`, at most `limit`, and return how many."""
    return int((await connection.execute(_SWEEP[table], tenant_id=tenant_id, limit=limit)).rpartition(" ")[2])


async def finish_end(connection: Connection, tenant_id: str) -> bool:
    """Delete the row of a tenant that was ended and has no threads. False where it is not there, or has some."""
    return await connection.fetchval(_FINISH, tenant_id=tenant_id) is not None
