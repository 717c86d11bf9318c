"""Ending a tenant: one statement makes it unusable, then its rows are deleted in bounded batches.

Threads are deleted first, by the purge that deletes threads in slices, with all rows that depend on them by foreign
keys. Then the other tables, children before parents, and the tenant's row last. A process that crashes in between
leaves a tenant that the next tick continues with.
"""

from __future__ import annotations

from typing import Final

from nova_workers.domain.audit.sql.chains import delete_audit_of
from nova_workers.ledger.database import Connection

# Serializes ends of tenants: if two operators end each other's tenant at once, one is refused.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('nova tenants end', 0))"

_HAS_OTHER_OPERATOR = """
SELECT EXISTS (SELECT FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
                WHERE k.tenant_id <> :tenant_id AND t.ending_at IS NULL AND 'operator' = ANY(k.scopes)
                  AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()))
"""

# One statement deletes the tenant's keys, so that no client can use it, pauses it, and clears its triggers.
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

# Runs whose events may still be in Redis, which keeps them for an hour after the last one.
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
    "work_order_trail",
    "work_order_parts",
    "work_order_keys",
    "work_orders",
    "orchestration_configs",
    "model_rankings",
    "model_judgements",
    "work_order_policies",
    "work_order_secrets",
    "webhooks",
    "leases",
    "channel_pairings",
    "run_lists",
    "samplings",
    "evaluation_judgements",
    "evaluation_trials",
    "evaluations",
    "dataset_examples",
    "datasets",
    "rollouts",
    "sign_ins",
    "people",
    "upkeep_cursors",
    "triggers",
    "tasks",
    "skills",
    "sent_files",
    "secrets",
    "project_items",
    "notes",
    "memories",
    "api_keys",
    "agents",
    "usage",
    "switches",
    "idempotency_keys",
    "request_parts",
    "deliveries",
    "audit_events",
    "audit_chains",
    # Deletions before it are recorded there.
    "changes",
)
"""Tables whose rows are deleted by tenant, children first. Other tables lose theirs with the threads; a test compares
with the models."""

_AUDIT: Final = frozenset({"audit_events", "audit_chains"})
"""Are not the fleet's to delete."""

_SWEEP: Final = {
    table: f"""
DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE tenant_id = :tenant_id LIMIT :limit))
"""
    for table in SWEPT
    if table not in _AUDIT
}


async def begin_end(connection: Connection, tenant_id: str) -> bool:
    """Make a tenant unusable, permanently. Call it in a transaction.

    Returns:
        False if no other tenant would have an operator's key. True for a tenant that was ended before.
    """
    await connection.execute(_ALONE)
    if not await connection.fetchval(_HAS_OTHER_OPERATOR, tenant_id=tenant_id):
        return False
    await connection.fetchval(_BEGIN, tenant_id=tenant_id)
    return True


async def ending_tenants(connection: Connection) -> list[str]:
    """Return ended tenants that still have rows, in the order in which they were ended."""
    return [row["id"] for row in await connection.fetch(_ENDING)]


async def purgeable_threads(connection: Connection, tenant_id: str, *, limit: int) -> list[str]:
    """Return threads that are not marked for the purge."""
    return [row["id"] for row in await connection.fetch(_PURGEABLE, tenant_id=tenant_id, limit=limit)]


async def streamed_runs(connection: Connection, thread_ids: list[str]) -> list[str]:
    """Return runs of threads whose live events may still be stored."""
    return [row["id"] for row in await connection.fetch(_STREAMED, thread_ids=thread_ids)]


async def mark_threads(connection: Connection, thread_ids: list[str]) -> None:
    """Mark threads for the purge."""
    await connection.execute(_MARK, thread_ids=thread_ids)


async def has_threads(connection: Connection, tenant_id: str) -> bool:
    """Return whether a tenant has threads left."""
    return await connection.fetchval(_HAS_THREADS, tenant_id=tenant_id)


async def sweep(connection: Connection, tenant_id: str, table: str, *, limit: int) -> int:
    """Delete rows of a tenant from one of `SWEPT`, at most `limit`, and return how many."""
    if table in _AUDIT:
        return await delete_audit_of(connection, tenant_id, limit=limit)
    return int((await connection.execute(_SWEEP[table], tenant_id=tenant_id, limit=limit)).rpartition(" ")[2])


async def finish_end(connection: Connection, tenant_id: str) -> bool:
    """Delete the row of an ended tenant without threads. False if there is no such tenant or it has threads."""
    return await connection.fetchval(_FINISH, tenant_id=tenant_id) is not None
