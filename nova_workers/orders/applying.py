"""Does what follows the commit of an order's transition: doorbells, and the notification of those who wait."""

from __future__ import annotations

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.contracts.ports import Dispatcher
from nova_workers.keys import order_channel
from nova_workers.orders.advance import After

__all__ = ["OrderNotifier"]

_log = structlog.get_logger(__name__)


class OrderNotifier:
    """Best effort: the reconciler rings for queued runs, and waiting requests look at the ledger now and then."""

    def __init__(self, redis: Redis, dispatcher: Dispatcher) -> None:
        self._redis = redis
        self._dispatcher = dispatcher

    async def apply(self, order_id: str, after: After) -> None:
        """Do what follows. Never raises."""
        if after.bells:
            self._dispatcher.ring_runs(after.bells)
        if after.delivers:
            self._dispatcher.ring_deliveries()
        if after.settled:
            try:
                await self._redis.publish(order_channel(order_id), b"")
            except RedisError as error:
                _log.warning("order.notification_lost", order_id=order_id, error=str(error))
