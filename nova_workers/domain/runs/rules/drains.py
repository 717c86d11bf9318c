"""Drains that an operator orders: the order is a row, and its worker finds it at its next look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from nova_workers.base.errors import Unavailable, missing
from nova_workers.contracts.http.fleet import WorkerDrain, WorkerView
from nova_workers.contracts.http.wire import REDIS_UNAVAILABLE
from nova_workers.domain.audit.sql.listing import record_act
from nova_workers.domain.runs.sql import drains as ledger
from nova_workers.domain.runs.sql.workers import has_session
from nova_workers.ledger.database import Connection, Database

_log = structlog.get_logger(__name__)

_EVERY_S = 5.0
"""Pause between two looks: a drain begins so much later at most."""
_RECORD_S = 2.0
"""The time for Postgres to take the end of a drain."""


async def order_drain(connection: Connection, worker_id: str, live: list[WorkerView] | None) -> WorkerDrain:
    """Order a live worker to drain. Ordering it again changes nothing, and returns the first order.

    Args:
        connection: In a transaction.
        worker_id: The id of its process.
        live: The workers with a recent record; None if Redis does not answer.

    Raises:
        NotFound: No live worker has this id.
        Unavailable: Whether one has is not known without Redis.
    """
    seen = worker_id in {worker.id for worker in live or ()}
    if not seen and not await has_session(connection, worker_id):
        if live is None:
            raise Unavailable(f"{REDIS_UNAVAILABLE}, where workers report that they are alive.")
        raise missing("worker", worker_id, "`nova fleet status` shows the ids of live workers.")
    drain = await ledger.order_drain(connection, worker_id)
    if drain is not None:
        await record_act(connection, "worker.drained", "worker", worker_id, {})
        return drain
    earlier = await ledger.find_drain(connection, worker_id)
    assert earlier is not None  # noqa: S101 - such rows live for a day
    return earlier


class DrainOrders:
    """Looks for the order of this worker. One object per process."""

    def __init__(self, database: Database, worker_id: str) -> None:
        """Take the database, and the worker's id."""
        self._database = database
        self._worker_id = worker_id
        self._is_ordered = False

    async def run(self, begin_drain: Callable[[], object]) -> None:
        """Look until there is an order, and begin the drain once."""
        while True:
            self._is_ordered = await self._look()
            if self._is_ordered:
                break
            await asyncio.sleep(_EVERY_S)
        _log.info("worker.drain_ordered", worker_id=self._worker_id)
        begin_drain()

    async def record_end(self) -> None:
        """Record that the worker ends, if it was ordered to. Best effort: live workers are known without."""
        if not self._is_ordered:
            return
        try:
            async with asyncio.timeout(_RECORD_S), self._database.connection() as connection:
                await ledger.record_drained(connection, self._worker_id)
        except (Unavailable, TimeoutError) as error:
            _log.warning("worker.drain_end_not_recorded", outage="postgres", error=str(error))

    async def _look(self) -> bool:
        try:
            async with self._database.connection() as connection:
                return await ledger.is_drain_ordered(connection, self._worker_id)
        except Unavailable as error:
            _log.warning("worker.drain_not_looked_for", outage="postgres", error=error.message)
        except Exception:  # the loop head of looks
            _log.exception("worker.drain_look_failed")
        return False
