"""Targets outside that deliveries of a tenant wait for: what is known of them, and the end of their rest."""

from __future__ import annotations

from nova_workers.contracts.deliveries import INBOX, WaitingTarget
from nova_workers.ledger.database import Connection

MOST_COUNTED = 1_000
"""Most deliveries that are counted of one target."""

# Walks from target to target by the index of the tenant's deliveries, then reads the pending ones of each, soonest
# first. Those of a disabled webhook wait for a person who enables it.
_WAITING = f"""
WITH RECURSIVE targets AS (
    (SELECT target FROM deliveries WHERE tenant_id = :tenant_id ORDER BY target LIMIT 1)
    UNION ALL
    SELECT (SELECT d.target FROM deliveries d WHERE d.tenant_id = :tenant_id AND d.target > t.target
             ORDER BY d.target LIMIT 1)
      FROM targets t
     WHERE t.target IS NOT NULL
)
SELECT t.target, w.id AS webhook_id, w.url, pending.waiting, pending.error,
       greatest(pending.next_try_at, w.rests_until) AS next_try_at
  FROM targets t
  LEFT JOIN webhooks w ON w.id = t.target COLLATE "C" AND w.tenant_id = :tenant_id
 CROSS JOIN LATERAL (
       SELECT count(*) AS waiting, min(soonest.due_at) AS next_try_at,
              (array_agg(soonest.error ORDER BY soonest.due_at DESC)
                   FILTER (WHERE soonest.error IS NOT NULL))[1] AS error
         FROM (SELECT d.due_at, d.error
                 FROM deliveries d
                WHERE d.target = t.target AND d.status = 'pending' AND d.tenant_id = :tenant_id
                ORDER BY d.due_at
                LIMIT :most) AS soonest) AS pending
 WHERE t.target <> '{INBOX}' AND pending.error IS NOT NULL AND w.enabled IS NOT FALSE
 ORDER BY t.target
"""

_IS_KNOWN = "SELECT EXISTS (SELECT FROM deliveries WHERE tenant_id = :tenant_id AND target = :target)"

# Only those that wait for their next attempt have an error: one without may be under way.
_RETRY = """
UPDATE deliveries SET due_at = now()
 WHERE tenant_id = :tenant_id AND target = :target AND status = 'pending' AND error IS NOT NULL AND due_at > now()
"""

_END_REST = "UPDATE webhooks SET rests_until = NULL WHERE tenant_id = :tenant_id AND id = :webhook_id"


async def list_waiting_targets(connection: Connection, tenant_id: str) -> list[WaitingTarget]:
    """Return the targets that failed and have deliveries that wait for their next attempt."""
    rows = await connection.fetch(_WAITING, tenant_id=tenant_id, most=MOST_COUNTED)
    return [WaitingTarget(**row) for row in rows]


async def is_known_target(connection: Connection, tenant_id: str, target: str) -> bool:
    """Return whether anything was ever to be sent to a target."""
    return await connection.fetchval(_IS_KNOWN, tenant_id=tenant_id, target=target)


async def retry_deliveries(connection: Connection, tenant_id: str, target: str) -> None:
    """Make the deliveries due that wait for their next attempt."""
    await connection.execute(_RETRY, tenant_id=tenant_id, target=target)


async def end_rest(connection: Connection, tenant_id: str, webhook_id: str) -> None:
    """Let a webhook that rests after failures be tried at once. Its failures still count."""
    await connection.execute(_END_REST, tenant_id=tenant_id, webhook_id=webhook_id)
