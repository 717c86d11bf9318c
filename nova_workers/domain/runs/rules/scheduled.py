"""Queues scheduled runs at their start time: by a timer in the accepting process, else by the reconciler."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from nova_workers.base.errors import Unavailable
from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.events import StreamEnd
from nova_workers.domain.runs.sql.scheduled import promote_due
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.ledger.work import Work

_log = structlog.get_logger(__name__)

_TIMER_S = 60.0
"""A start within this time gets a timer in the accepting process. The reconciler covers every start."""

_BATCH = 500
_MOST_TIMERS = 1_000


class Scheduled:
    """Queues scheduled runs when they are due. One object per process."""

    def __init__(self, work: Work, publisher: EventPublisher) -> None:
        self._work = work
        self._publisher = publisher
        self._timers: set[asyncio.Task[None]] = set()

    async def start_due(self, thread_id: str | None = None) -> int:
        """Queue the due runs of one thread or of all, and return how many.

        Raises:
            Unavailable: The database does not answer; the next pass finds them again.
        """
        async with self._work.begin_statement() as tx:
            promoted = await promote_due(tx.connection, thread_id=thread_id, limit=_BATCH)
            for each in promoted:
                for run_id in each.joined:
                    end = StreamEnd(run_id=run_id, final=True, status="merged", merged_into=each.bell.run_id)
                    tx.publish(partial(self._publisher.announce_end, run_id, end))
            tx.ring(each.bell for each in promoted)
        return len(promoted)

    def start_after(self, thread_id: str, delay_s: float) -> None:
        """Queue a thread's due runs after a delay. If this process ends first, the reconciler does it."""
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
