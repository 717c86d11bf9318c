"""Appends to the trails that an order asks for."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.domain.orders.sql.ends import TrailEntry, add_trail
from nova_workers.domain.orders.sql.records import OrderRow
from nova_workers.ledger.database import Connection


async def record(connection: Connection, row: OrderRow, entries: Sequence[TrailEntry]) -> None:
    """Append entries for readers whose trail the order records. In the transaction of what they report."""
    recorded = {"customer": row.customer_trail, "internal": row.internal_trail}
    wanted = [entry for entry in entries if recorded[entry.audience]]
    await add_trail(connection, row.tenant_id, row.id, wanted)
