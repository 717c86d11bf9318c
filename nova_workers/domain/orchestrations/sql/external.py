"""External masters: programs outside of the fleet that are the master of an orchestration, and what they wait for."""

from __future__ import annotations

from nova_workers.base.errors import OrchestrationError, existing
from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.contracts.waits import AwaitMessages
from nova_workers.domain.orchestrations.sql.agents import AGENT_COLUMNS, descriptor
from nova_workers.domain.orchestrations.sql.locking import EXTERNAL_WAIT_S
from nova_workers.ledger.database import Connection

_MASTER = f"""
SELECT {AGENT_COLUMNS}, o.is_external
  FROM orchestrations o JOIN orchestration_agents a ON a.id = o.master_id
 WHERE o.tenant_id = :tenant_id AND o.id = :id
"""

# Waits of requests that ended without an answer are dropped.
_RECORD = f"""
UPDATE orchestrations o
   SET master_waits = jsonb_build_object(:key::text, jsonb_build_object('request', :request::jsonb, 'at', now()))
       || COALESCE((SELECT jsonb_object_agg(w.key, w.value) FROM jsonb_each(o.master_waits) w
                     WHERE w.key <> :key
                       AND (w.value->>'at')::timestamptz > now() - interval '{EXTERNAL_WAIT_S} seconds'), '{{}}')
 WHERE o.id = :id
"""
_END = "UPDATE orchestrations SET master_waits = master_waits - :key::text WHERE id = :id"


async def find_external_master(connection: Connection, tenant_id: str, orchestration_id: str) -> AgentDescriptor:
    """Return the external master of an orchestration.

    Raises:
        NotFound: No such orchestration in this tenant.
        OrchestrationError: Its master is an agent of the fleet.
    """
    row = existing(
        await connection.fetchrow(_MASTER, tenant_id=tenant_id, id=orchestration_id), "orchestration", orchestration_id
    )
    values = dict(row)
    if not values.pop("is_external"):
        raise OrchestrationError(
            f"The master of orchestration {orchestration_id!r} is an agent of the fleet. Start one with the master "
            "'external' to act as its master."
        )
    return descriptor(values)


async def record_wait(connection: Connection, orchestration_id: str, key: str, request: AwaitMessages) -> None:
    """Record what a call of the master waits for, or renew it. The tree is locked."""
    await connection.execute(_RECORD, id=orchestration_id, key=key, request=request.model_dump(mode="json"))


async def end_wait(connection: Connection, orchestration_id: str, key: str) -> None:
    """Remove the wait of a call. The tree is locked."""
    await connection.execute(_END, id=orchestration_id, key=key)
