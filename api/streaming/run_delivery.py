"""Delivers the events of a run to one follower: each once, in order; from the ledger what the stream misses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Protocol

from nova_workers.contracts.events import Event, EventCursor
from nova_workers.domain.runs.sql.replay import RecordedRun
from nova_workers.domain.streams.rules.hub import Feed
from nova_workers.domain.streams.rules.replay import fill_gap, replay, replay_hold, replay_waits
from nova_workers.domain.streams.rules.wire import Batch, LiveEvent, is_final

SLICE_EVENTS = 500
"""Most events that are sent at once. Other streams of the process continue between two slices, also if the client is so
fast that `Follower.on_events` never waits."""
_CALL_STATES = frozenset({"started", "completed", "failed", "interrupted"})


class Follower(Protocol):
    """Receives the events. Above this seam: one HTTP response. Below it: `RunDelivery`."""

    idle_every_s: float

    async def on_events(self, events: Sequence[LiveEvent]) -> None:
        """Take the next events. Waits for a slow client."""
        ...

    async def on_idle(self) -> None:
        """Called every `idle_every_s`."""
        ...

    async def until_gone(self) -> None:
        """Return once the client has disconnected."""
        ...


class RunDelivery:
    """Passes one run's events to one follower.

    A client that obeys the rules of docs/http-api.md never has text with a hole in it. Where the stream misses events,
    it gets the committed steps from the ledger. If text of the open step is missing too, it gets nothing of this step
    until its text is known whole. So the id that the client has stays before the hole, and it may reconnect at any
    moment.
    """

    def __init__(
        self, recorded: Callable[[], Awaitable[RecordedRun | None]], follower: Follower, after: EventCursor
    ) -> None:
        """Begin after an event.

        Args:
            recorded: Reads the run from the ledger.
            follower: Receives the events.
            after: The id of the last event that the client has.
        """
        self._recorded = recorded
        self._follower = follower
        self._sent = after
        self._covered = after
        """The client has what the live events up to this one contain."""
        self._is_torn = False
        """Whether text of the open step is missing."""
        self._waited = -1
        """The last attempt whose waits were sent from the ledger; 0: why it does not begin was sent."""

    async def pump(self, feed: Feed) -> None:
        """Pass live events on until the final one was sent."""
        async with aclosing(feed.batches()) as batches:
            async for batch in batches:
                if await self.take(batch):
                    return

    async def take(self, batch: Batch) -> bool:
        """Pass on a batch of the feed. Return whether the run has ended."""
        if not batch.events:
            return await self._send_waits()
        events = self._uncovered(batch.events)
        if not events:
            return False
        # If the first events are covered, the others continue them.
        if batch.has_gap and len(events) == len(batch.events) and not self._continues(events[0].cursor):
            if await self._fill(events[0].cursor):
                return True
            events = self._uncovered(events)
        while self._is_torn and events:
            if await self._repair(events[0]):
                return True
            events = events[1:] if self._is_torn else self._uncovered(events)
        await self._send(events)
        return bool(events) and is_final(events[-1])

    def has_sent_waits(self, attempt: int) -> bool:
        """Return whether the waits of an attempt were sent from the ledger."""
        return self._waited >= attempt

    async def finish_from_ledger(self) -> None:
        """Send the remaining events of an ended run."""
        if (recorded := await self._recorded()) is not None:
            await self._send_recorded(replay(recorded, self._sent))

    async def _read(self) -> tuple[RecordedRun | None, bool]:
        """Return the run, and whether it has ended. Then it was sent to its end."""
        recorded = await self._recorded()
        if recorded is None or recorded.final_event is None:
            return recorded, False
        await self._send_recorded(replay(recorded, self._sent))
        return recorded, True

    async def _send_waits(self) -> bool:
        """Send what the stream misses of a run that waits or is held. Return whether it was sent to its end."""
        recorded, has_ended = await self._read()
        if recorded is not None and recorded.waits:
            await self._send_waits_of(recorded)
        elif recorded is not None and recorded.attempt == 0 and recorded.hold is not None:
            await self._send_recorded(replay_hold(recorded, self._sent))
            self._waited = 0
        return has_ended

    async def _send_waits_of(self, recorded: RecordedRun) -> None:
        await self._send_recorded(replay_waits(recorded, self._sent))
        self._is_torn = False
        self._waited = recorded.attempt

    def _uncovered(self, events: Sequence[LiveEvent]) -> list[LiveEvent]:
        return [event for event in events if event.cursor.key() > self._covered.key()]

    def _continues(self, cursor: EventCursor) -> bool:
        covered = self._covered
        return not (self._is_torn or covered.number) and cursor.key() == (covered.attempt, covered.seq + 1, 0)

    async def _fill(self, upto: EventCursor) -> bool:
        """Send what was committed and is missing before a live event. Return whether the run was sent to its end."""
        recorded, has_ended = await self._read()
        if recorded is not None and recorded.waits and recorded.attempt == upto.attempt:
            # They may be among what is missing, and the live end of the attempt would hide that.
            await self._send_waits_of(recorded)
        elif recorded is not None and not has_ended:
            filling = fill_gap(recorded, self._sent, upto)
            self._is_torn = not filling.is_whole
            await self._send_recorded(filling.events)
            self._covered = filling.covered
        return has_ended

    async def _repair(self, event: LiveEvent) -> bool:
        """Decide by an event whether the text of the open step is whole again. Return whether the run has ended."""
        if _replaces_text(event):
            self._is_torn = False
        elif _follows_commit(event):
            return await self._fill(event.cursor)
        return False

    async def _send_recorded(self, events: Iterable[tuple[EventCursor, Event]]) -> None:
        await self._send(
            [LiveEvent(cursor, event.model_dump(mode="json", exclude_none=True)) for cursor, event in events]
        )

    async def _send(self, events: Sequence[LiveEvent]) -> None:
        for start in range(0, len(events), SLICE_EVENTS):
            if start:
                await asyncio.sleep(0)
            part = events[start : start + SLICE_EVENTS]
            await self._follower.on_events(part)
            self._sent = self._covered = part[-1].cursor


def _replaces_text(event: LiveEvent) -> bool:
    """Return whether an event replaces or voids all text of the open step."""
    match event.event:
        case {"type": "stream_start"} | {"type": "stream_end", "final": False}:
            return True
        case {"type": "restart" | "assistant_message"}:
            return event.event.get("agent") is None
        case _:
            return False


def _follows_commit(event: LiveEvent) -> bool:
    """Return whether the ledger may have the text of the open step since an event."""
    match event.event:
        case {"type": "step"} | {"type": "stream_end"}:
            return True
        case {"type": "tool_status", "status": status}:
            return event.event.get("agent") is None and status in _CALL_STATES
        case _:
            return False
