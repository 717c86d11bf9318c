"""Waits for the end of a work order: woken by the worker that ends it, and by the ledger if that was not heard."""

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from nova_workers.base.clock import Clock
from nova_workers.base.keys import order_channel
from nova_workers.domain.orders.sql.records import orders_not_running
from nova_workers.domain.streams.rules.hub import StreamHub
from nova_workers.ledger.database import Database

from ..boundary import until_gone
from .following import Waited, until_first
from .run_watch import RunWatch


class OrderFollower:
    """Waits for orders. One object per process."""

    def __init__(self, database: Database, hub: StreamHub, watch: RunWatch, clock: Clock) -> None:
        self._database = database
        self._hub = hub
        self._watch = watch
        self._clock = clock

    async def wait(self, order_id: str, receive: Receive, *, timeout_s: float) -> Waited:
        """Wait until an order has ended or needs a person.

        Raises:
            ClientDisconnect: The client has disconnected.
        """
        until_s = self._clock.monotonic_s() + timeout_s
        async with self._hub.follow_signal(order_channel(order_id)) as signal:
            with self._watch.watch(order_id) as woken:
                while (left_s := until_s - self._clock.monotonic_s()) > 0:
                    ending = await until_first(signal.wait(), woken, until_gone(receive), left_s)
                    if ending == "gone":
                        raise ClientDisconnect
                    if ending != "done":
                        return ending
                    async with self._database.connection() as connection:
                        if await orders_not_running(connection, [order_id]):
                            return "over"
        return "timeout"
