"""Notices one event of a run, such as its end, for a follower that needs no others: without a queue and a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.contracts.events import EventCursor
from nova_workers.domain.streams.rules.stored import stored_pages
from nova_workers.domain.streams.rules.wire import Continuity, LiveEvent, decode

_log = structlog.get_logger(__name__)

SILENCE_S = 0.25
"""After a subscription to a run that had no events: then its stream is read, in case they were sent before."""
_START = EventCursor()


class EndFeed:
    """Calls `on_end` when an event of a run is of those that are waited for: at least once if Redis has it.

    An event that a publisher could not send is not noticed; the caller has the ledger for that.
    """

    def __init__(
        self,
        redis: Redis,
        run_id: str,
        is_end: Callable[[LiveEvent], bool],
        on_end: Callable[[], None],
        *,
        had_events: bool,
    ) -> None:
        """Prepare to follow.

        Args:
            redis: Has the stream.
            is_end: Whether an event is waited for. It is asked about events of the types `stream_end` and `waiting`.
            on_end: Called at such an event.
            had_events: False if no worker had claimed the run a moment ago. Then its stream is not read at once.
        """
        self._redis = redis
        self._run_id = run_id
        self._is_end = is_end
        self._on_end = on_end
        self._may_wait = not had_events
        self._has_beginning = had_events
        """Whether events before those that are pushed are known, or are read from the stream."""
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None

    def wants(self, payload: bytes) -> bool:
        """Return whether a payload may contain what is waited for, or show that something before it was missed."""
        return not self._has_beginning or b'"stream_end"' in payload or b'"waiting"' in payload

    def push(self, events: list[LiveEvent]) -> None:
        """Look at published events."""
        if self._look(events) or not events or self._has_beginning:
            return
        self._has_beginning = True
        if not Continuity(_START).is_next(events[0].cursor):
            self._read()

    def resync(self) -> None:
        """Read the stream, since events may have been missed.

        After the first subscription to a run that had no events yet, this waits a moment: what arrives from its first
        event on makes it unnecessary.
        """
        if self._may_wait and not self._has_beginning:
            self._may_wait = False
            self._timer = asyncio.get_running_loop().call_later(SILENCE_S, self._read_if_silent)
        else:
            self._read()

    def close(self) -> None:
        """Stop to read."""
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()

    def _read_if_silent(self) -> None:
        if not self._has_beginning:
            self._read()

    def _read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = asyncio.create_task(self._look_at_stream())

    async def _look_at_stream(self) -> None:
        try:
            async with aclosing(stored_pages(self._redis, self._run_id, _START)) as pages:
                async for page in pages:
                    for payload in page:
                        self._look(decode(payload))
        except RedisError as error:
            # The hub subscribes anew once Redis answers, and then it is read again.
            _log.warning("end_feed.stream_not_read", run_id=self._run_id, error=str(error))

    def _look(self, events: list[LiveEvent]) -> bool:
        is_over = any(event.event["type"] in ("stream_end", "waiting") and self._is_end(event) for event in events)
        if is_over:
            self._on_end()
        return is_over
