"""Calls that a person allowed for all agents of an orchestration."""

from __future__ import annotations

from nova_workers.contracts.content import JsonObject
from nova_workers.ledger.database import Connection

# Adds a call once. It locks the tree's row, so call it before a statement that locks a thread.
_ALLOW = """
UPDATE orchestrations o
   SET allowed_calls = CASE WHEN o.allowed_calls @> :calls::jsonb THEN o.allowed_calls
                            ELSE o.allowed_calls || :calls::jsonb END
  FROM runs r JOIN threads t ON t.id = r.thread_id
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id AND o.id = t.orchestration_id
RETURNING o.id
"""
_IS_ALLOWED = "SELECT allowed_calls @> :calls::jsonb FROM orchestrations WHERE tenant_id = :tenant_id AND id = :id"


async def allow_always(connection: Connection, tenant_id: str, run_id: str, call: JsonObject) -> bool:
    """Allow a call for all agents of a run's orchestration. False if the run belongs to none."""
    return await connection.fetchval(_ALLOW, tenant_id=tenant_id, run_id=run_id, calls=[call]) is not None


async def is_allowed_always(connection: Connection, tenant_id: str, orchestration_id: str, call: JsonObject) -> bool:
    """Return whether a person allowed a call for all agents of an orchestration."""
    return bool(await connection.fetchval(_IS_ALLOWED, tenant_id=tenant_id, id=orchestration_id, calls=[call]))
