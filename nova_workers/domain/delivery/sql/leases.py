"""Leases of claimed deliveries: renewed while their attempts last, and ended early when their worker shuts down."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from nova_workers.contracts.deliveries import DeliveryItem
from nova_workers.ledger.database import Connection

# An attempt whose lease was taken over changes nothing. Locks rows in the order of their ids.
_RENEW = """
WITH mine AS (
    SELECT d.id
      FROM deliveries d JOIN unnest(:delivery_ids::text[], :attempts::int[], :claims::int[]) AS held(id, attempt, claim)
        ON held.id = d.id AND held.attempt = d.attempts AND held.claim = d.claims
     WHERE d.status = 'pending'
     ORDER BY d.id
       FOR UPDATE OF d
)
UPDATE deliveries d SET due_at = now() + :lease::interval FROM mine WHERE d.id = mine.id
"""

# Returns deliveries without counting the attempt, because the worker is shutting down.
_RELEASE = """
UPDATE deliveries d
   SET attempts = d.attempts - 1, due_at = now()
  FROM unnest(:delivery_ids::text[], :attempts::int[], :claims::int[]) AS held(id, attempt, claim)
 WHERE d.id = held.id AND d.attempts = held.attempt AND d.claims = held.claim AND d.status = 'pending'
"""


async def renew_deliveries(connection: Connection, items: Sequence[DeliveryItem], *, lease: timedelta) -> None:
    """Extend the leases of claimed deliveries."""
    await connection.execute(
        _RENEW,
        delivery_ids=[item.id for item in items],
        attempts=[item.attempt for item in items],
        claims=[item.claim for item in items],
        lease=lease,
    )


async def release_deliveries(connection: Connection, items: Sequence[DeliveryItem]) -> None:
    """Return claimed deliveries, due at once, without counting the attempt."""
    await connection.execute(
        _RELEASE,
        delivery_ids=[item.id for item in items],
        attempts=[item.attempt for item in items],
        claims=[item.claim for item in items],
    )
