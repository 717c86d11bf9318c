"""Starts runs whose time has come: by a timer of the process that accepted them, and by the reconciler."""

from __future__ import annotations

import asyncio

import structlog

from nova_workers.contracts.events import StreamEnd
from nova_workers.contracts.ports import Dispatcher
from nova_workers.errors import Unavailable
from nova_workers.ledger.database import Database
from nova_workers.ledger.scheduled import promote_due
from nova_workers.stopping import stop_tasks
from nova_workers.streams.publisher import EventPublisher

__all__ = ["Scheduled"]

_log = structlog.get_logger(__name__)

_TIMER_S = 60.0
"""A start within this time has a timer in the process that accepted it. The reconciler finds all of them."""

_BATCH = 500
_MOST_TIMERS = 1_000


class Scheduled:
    """Puts scheduled runs into their lines. One object a process; any number of processes."""

    def __init__(self, database: Database, dispatcher: Dispatcher, publisher: EventPublisher) -> None:
        self._database = database
        self._dispatcher = dispatcher
        self._publisher = publisher
        self._timers: set[asyncio.Task[None]] = set()

    async def start_due(self, thread_id: str | None = None) -> int:
        """Start what is due, of one thread or of all, and return how many runs that were.

        Raises:
            Unavailable: The database does not answer; the next pass finds them again.
        """
        async with self._database.connection() as connection:
            promoted = await promote_due(connection, thread_id=thread_id, limit=_BATCH)
        for each in promoted:
            for run_id in each.joined:
                end = StreamEnd(run_id=run_id, final=True, status="merged", merged_into=each.bell.run_id)
                self._publisher.announce_end(run_id, end)
        self._dispatcher.ring_runs([each.bell for each in promoted])
        return len(promoted)

    def start_after(self, thread_id: str, delay_s: float) -> None:
        """Have a thread's runs started after a moment. If this process ends before, the reconciler starts them."""
        if delay_s > _TIMER_S or len(self._timers) >= _MOST_TIMERS:
            return
        timer = asyncio.create_task(self._start_later(thread_id, delay_s))
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)

    async def close(self) -> None:
        """Stop the timers."""
        await stop_tasks(list(self._timers))

    async def _start_later(self, thread_id: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        try:
            await self.start_due(thread_id)
        except Unavailable as error:
            _log.warning("run.start_left_to_reconciler", thread_id=thread_id, error=str(error))
