"""The tick of orders: ends parts whose run ended without them, orders and reviews whose time is over.

Each is guarded, so any number of ticks may run at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from nova_workers.base.errors import Unavailable
from nova_workers.base.observability.redaction import frames_of
from nova_workers.base.vocabulary import OutageReason, WorkStopReason
from nova_workers.domain.orders.rules.advance import advance, finish, finish_without_content, open_order
from nova_workers.domain.orders.rules.calling import reason_of_outage
from nova_workers.domain.orders.rules.sealing import OrderKeys
from nova_workers.domain.orders.sql import ends as ledger
from nova_workers.domain.orders.sql.parts import PartEnd, end_part
from nova_workers.domain.orders.sql.records import OrderRow, held_parts, list_parts, lock_order
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)

_BATCH: Final = 200


class OrderTicker:
    """Sweeps open orders. One object per process."""

    def __init__(self, work: Work, keys: OrderKeys) -> None:
        self._work = work
        self._keys = keys

    async def tick(self) -> int:
        """Sweep open orders, and return how many were looked at.

        Raises:
            Unavailable: The database does not answer.
        """
        async with self._work.database.connection() as connection:
            lost = await ledger.lost_parts(connection, limit=_BATCH)
            overdue = await ledger.overdue_orders(connection, limit=_BATCH)
            unreviewed = await ledger.overdue_reviews(connection, limit=_BATCH)
            await ledger.delete_expired_keys(connection, limit=_BATCH)
        for part in lost:
            await self._move(part.order_id, lambda tx, row, part=part: self._end_lost(tx, row, part))
        for order_id in overdue:
            await self._move(order_id, self._end_overdue)
        for order_id in unreviewed:
            await self._move(order_id, self._end_unreviewed)
        return len(lost) + len(overdue) + len(unreviewed)

    async def _move(self, order_id: str, step: Callable[[UnitOfWork, OrderRow], Awaitable[None]]) -> None:
        try:
            async with self._work.begin() as tx:
                row = await lock_order(tx.connection, order_id)
                if row is not None:
                    await step(tx, row)
        except Unavailable:
            raise
        except Exception as error:
            # A defect, or a master key that this process lacks. Its message may quote content.
            _log.error("order.not_moved", order_id=order_id, error_type=type(error).__name__, frames=frames_of(error))
            await self._abandon(order_id)

    async def _end_lost(self, tx: UnitOfWork, row: OrderRow, part: ledger.LostPart) -> None:
        reason = _reason_of(part)
        if row.state == "running" and await _end(tx.connection, part.part_id, reason):
            _log.warning("order.part_lost", order_id=row.id, part_id=part.part_id, run_status=part.status)
            await advance(tx, row, self._keys)

    async def _end_overdue(self, tx: UnitOfWork, row: OrderRow) -> None:
        if row.state != "running" or not row.overdue:
            return
        connection = tx.connection
        held = await held_parts(connection, row.id)
        waiting: dict[str, OutageReason] = {each.run_id: each.detail.outage for each in held}
        for part in await list_parts(connection, row.id):
            if part.stop_reason is None:
                outage = waiting.get(part.run_id)
                await _end(connection, part.id, "round_cap_exceeded" if outage is None else reason_of_outage(outage))
        await advance(tx, row, self._keys)

    async def _end_unreviewed(self, tx: UnitOfWork, row: OrderRow) -> None:
        if row.state == "review" and row.overdue:
            order = await open_order(tx.connection, row, self._keys)
            await finish(tx, order, [], "needs_human", cached=False, needs_human=False, reviewed="expired")

    async def _abandon(self, order_id: str) -> None:
        """End an order without its content, a minute after its end was due.

        Until then another process may end it with its artifacts: one that has the master key, which this one may lack.
        """
        async with self._work.begin() as tx:
            row = await lock_order(tx.connection, order_id)
            if row is not None and row.abandoned:
                await finish_without_content(tx, row)


async def _end(connection: Connection, part_id: str, reason: WorkStopReason) -> bool:
    return await end_part(connection, part_id, PartEnd(reason, spent=None), attempt=None)


def _reason_of(part: ledger.LostPart) -> WorkStopReason:
    """Return the stop reason of a part whose run ended without it."""
    if part.status == "canceled":
        return "needs_human"
    return "cost_cap_exceeded" if part.error_kind == "budget_exceeded" else "provider_failed"
