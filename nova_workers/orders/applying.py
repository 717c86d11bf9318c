"""Does what follows the commit of an order's transition: doorbells, and the notification of those who wait."""

from __future__ import annotations

from redis.asyncio import Redis

from nova_workers.broker.notifier import Notifier
from nova_workers.contracts.ports import Dispatcher
from nova_workers.keys import order_channel
from nova_workers.orders.advance import After

__all__ = ["OrderNotifier"]


class OrderNotifier:
    """Best effort: the reconciler rings for queued runs, and waiting requests look at the ledger now and then."""

    def __init__(self, redis: Redis, dispatcher: Dispatcher) -> None:
        self._notifier = Notifier(redis)
        self._dispatcher = dispatcher

    async def apply(self, order_id: str, after: After) -> None:
        """Do what follows. Never raises."""
        if after.bells:
            self._dispatcher.ring_runs(after.bells)
        if after.delivers:
            self._dispatcher.ring_deliveries()
        if after.settled:
            await self._notifier.publish(order_channel(order_id), b"", order_id=order_id)
