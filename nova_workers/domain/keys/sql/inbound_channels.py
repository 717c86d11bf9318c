"""Inbound channels of a tenant, as their leases have them: which process serves each, and why it rests."""

from __future__ import annotations

from nova_workers.contracts.http.inbound_channels import LEASE_PREFIX, InboundChannelView
from nova_workers.ledger.database import Connection

# At most the maximum of leases of a tenant. A channel that was removed while it rested would rest for good, so an hour
# after it should have tried again the error no longer counts.
_LIST = """
SELECT substr(l.name, length(:prefix) + 1) AS name, l.holder, l.expires_at > now() AS is_served,
       rest.error, rest.failing_since, rest.next_try_at, l.retry_requested_at
  FROM leases l
  LEFT JOIN LATERAL (
       SELECT l.error, l.failing_since, l.next_try_at
        WHERE GREATEST(l.expires_at, l.next_try_at) > now() - interval '1 hour') rest ON true
 WHERE l.tenant_id = :tenant_id AND starts_with(l.name, :prefix)
 ORDER BY l.name
"""

# Its holder reads it with the next renewal.
_RETRY = "UPDATE leases SET retry_requested_at = now() WHERE tenant_id = :tenant_id AND name = :name RETURNING name"


async def list_inbound_channels(connection: Connection, tenant_id: str) -> list[InboundChannelView]:
    """Return the channels that any process has served."""
    rows = await connection.fetch(_LIST, tenant_id=tenant_id, prefix=LEASE_PREFIX)
    return [InboundChannelView(**row) for row in rows]


async def request_retry(connection: Connection, tenant_id: str, name: str) -> bool:
    """Ask the process that serves a channel to try now; return whether there is such a channel."""
    return await connection.fetchval(_RETRY, tenant_id=tenant_id, name=f"{LEASE_PREFIX}{name}") is not None
