"""The tick of orders: ends parts whose run ended without them, orders and reviews whose time is over.

Each is guarded, so any number of ticks may run at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from nova_workers.errors import Unavailable
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.orders import ends as ledger
from nova_workers.ledger.orders.parts import PartEnd, end_part
from nova_workers.ledger.orders.records import OrderRow, held_parts, list_parts, lock_order
from nova_workers.observability.redaction import frames_of
from nova_workers.orders.advance import (
    NOTHING_FOLLOWS,
    After,
    advance,
    finish,
    finish_without_content,
    open_order,
)
from nova_workers.orders.applying import OrderNotifier
from nova_workers.orders.calling import reason_of_outage
from nova_workers.orders.sealing import OrderKeys
from nova_workers.vocabulary import OutageReason, WorkStopReason

__all__ = ["OrderTicker"]

_log = structlog.get_logger(__name__)

_BATCH: Final = 200


class OrderTicker:
    """Sweeps open orders. One object per process."""

    def __init__(self, database: Database, keys: OrderKeys, notifier: OrderNotifier) -> None:
        self._database = database
        self._keys = keys
        self._notifier = notifier

    async def tick(self) -> int:
        """Sweep open orders, and return how many were looked at.

        Raises:
            Unavailable: The database does not answer.
        """
        async with self._database.connection() as connection:
            lost = await ledger.lost_parts(connection, limit=_BATCH)
            overdue = await ledger.overdue_orders(connection, limit=_BATCH)
            unreviewed = await ledger.overdue_reviews(connection, limit=_BATCH)
            await ledger.delete_expired_keys(connection, limit=_BATCH)
        for part in lost:
            await self._move(part.order_id, lambda c, row, part=part: self._end_lost(c, row, part))
        for order_id in overdue:
            await self._move(order_id, self._end_overdue)
        for order_id in unreviewed:
            await self._move(order_id, self._end_unreviewed)
        return len(lost) + len(overdue) + len(unreviewed)

    async def _move(self, order_id: str, step: Callable[[Connection, OrderRow], Awaitable[After]]) -> None:
        after = NOTHING_FOLLOWS
        try:
            async with self._database.transaction() as connection:
                row = await lock_order(connection, order_id)
                after = NOTHING_FOLLOWS if row is None else await step(connection, row)
        except Unavailable:
            raise
        except Exception as error:
            # A defect, or a master key that this process lacks. Its message may quote content.
            _log.error("order.not_moved", order_id=order_id, error_type=type(error).__name__, frames=frames_of(error))
            after = await self._abandon(order_id)
        await self._notifier.apply(order_id, after)

    async def _end_lost(self, connection: Connection, row: OrderRow, part: ledger.LostPart) -> After:
        reason = _reason_of(part)
        if row.state != "running" or not await _end(connection, part.part_id, reason):
            return NOTHING_FOLLOWS
        _log.warning("order.part_lost", order_id=row.id, part_id=part.part_id, run_status=part.status)
        return await advance(connection, row, self._keys)

    async def _end_overdue(self, connection: Connection, row: OrderRow) -> After:
        if row.state != "running" or not row.overdue:
            return NOTHING_FOLLOWS
        held = await held_parts(connection, row.id)
        waiting: dict[str, OutageReason] = {each.run_id: each.detail.outage for each in held}
        for part in await list_parts(connection, row.id):
            if part.stop_reason is None:
                outage = waiting.get(part.run_id)
                await _end(connection, part.id, "round_cap_exceeded" if outage is None else reason_of_outage(outage))
        return await advance(connection, row, self._keys)

    async def _end_unreviewed(self, connection: Connection, row: OrderRow) -> After:
        if row.state != "review" or not row.overdue:
            return NOTHING_FOLLOWS
        order = await open_order(connection, row, self._keys)
        return await finish(connection, order, [], "needs_human", cached=False, needs_human=False, reviewed="expired")

    async def _abandon(self, order_id: str) -> After:
        """End an order without its content, a minute after its end was due.

        Until then another process may end it with its artifacts: one that has the master key, which this one may lack.
        """
        async with self._database.transaction() as connection:
            row = await lock_order(connection, order_id)
            if row is None or not row.abandoned:
                return NOTHING_FOLLOWS
            return await finish_without_content(connection, row)


async def _end(connection: Connection, part_id: str, reason: WorkStopReason) -> bool:
    return await end_part(connection, part_id, PartEnd(reason, spent=None), attempt=None)


def _reason_of(part: ledger.LostPart) -> WorkStopReason:
    """Return the stop reason of a part whose run ended without it."""
    if part.status == "canceled":
        return "needs_human"
    return "cost_cap_exceeded" if part.error_kind == "budget_exceeded" else "provider_failed"
