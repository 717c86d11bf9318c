"""Follows a run to its end: live while it runs, from the ledger if the live stream has gaps or is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, Self, cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from nova_workers.base.stopping import stop_tasks
from nova_workers.base.vocabulary import EXTERNAL_WAITS
from nova_workers.contracts.events import Event, EventCursor
from nova_workers.domain.runs.sql.reads import RunState, SuspendedRun, run_state
from nova_workers.domain.runs.sql.replay import RecordedRun, load_recorded_run
from nova_workers.domain.streams.rules.ends import EndFeed
from nova_workers.domain.streams.rules.hub import Feed, StreamHub
from nova_workers.domain.streams.rules.replay import fill_gap, replay, replay_hold, replay_waits
from nova_workers.domain.streams.rules.stored import stored_pages
from nova_workers.domain.streams.rules.wire import Batch, Continuity, LiveEvent, decode, is_final
from nova_workers.ledger.database import Database

from ..boundary import until_gone
from ..errors import CursorFromTheFuture
from .run_watch import RunWatch, Wake

_log = structlog.get_logger(__name__)

Ending = Literal["over", "gone", "closing"]
Waited = Literal["over", "closing", "timeout"]
"""Why following ended: the run ended, the client disconnected, or the process stops."""

_REDIS_DEADLINE_S = 1.0
_SLICE_EVENTS = 500
"""Most events that are sent at once. Other streams of the process continue between two slices, also if the client is so
fast that `Follower.on_events` never waits."""
_CALL_STATES = frozenset({"started", "completed", "failed", "interrupted"})
_START = EventCursor()


@dataclass(frozen=True, slots=True)
class Target:
    """The run to follow, and the cursor to start from."""

    tenant_id: str
    run_id: str
    after: EventCursor = _START


class RunFollower:
    """Sends the events of runs to followers, each once, in order, up to the final one."""

    def __init__(self, database: Database, redis: Redis, hub: StreamHub, watch: RunWatch) -> None:
        self._database = database
        self._redis = redis
        self._hub = hub
        self._watch = watch

    async def read_state(self, target: Target) -> RunState:
        """Return the state of a run.

        Raises:
            NotFound: No such run in this tenant.
        """
        async with self._database.connection() as connection:
            return await run_state(connection, target.tenant_id, target.run_id)

    async def find(self, target: Target) -> RunState:
        """Return the state of a run, and check that the cursor can belong to it.

        Raises:
            NotFound: No such run in this tenant.
            CursorFromTheFuture: The cursor is beyond the run's newest event.
        """
        state = await self.read_state(target)
        check_cursor(target, state)
        return state

    async def follow(self, target: Target, state: RunState, follower: Follower) -> Ending:
        """Pass every event after the target's cursor to a follower, until the run's final event.

        Args:
            target: The run and the cursor.
            state: The run's state, as returned by `find`.
            follower: Receives the events.
        """
        delivery = RunDelivery(partial(self._recorded, target), follower, target.after)
        if state.ended:
            await self._replay(target, delivery)
            return "over"
        had_events = state.attempt > 0 or target.after.key() != _START.key()
        async with self._hub.follow(target.run_id, target.after, had_events=had_events) as feed:

            def look(found: SuspendedRun) -> None:
                if not delivery.has_sent_waits(found.attempt):
                    feed.look(found.attempt)

            with self._watch.watch(target.run_id, look) as woken:
                ending = await until_first(
                    delivery.pump(feed), woken, follower.until_gone(), follower.idle_every_s, follower.on_idle
                )
        if ending == "over":
            await delivery.finish_from_ledger()
        return "over" if ending == "done" else cast(Ending, ending)

    def expect_end(self, run_id: str, *, had_events: bool, after_attempt: int = 0) -> ExpectedEnd:
        """Return the wait until a run has ended or asks a person. It is driven by events, without polling.

        Args:
            run_id: The run. It need not exist yet: then none of its events is missed.
            had_events: False if no worker had claimed the run when it was last read.
            after_attempt: Questions of attempts up to this one were answered.
        """
        return ExpectedEnd(
            self._redis, self._hub, self._watch, run_id, had_events=had_events, after_attempt=after_attempt
        )

    async def _replay(self, target: Target, delivery: RunDelivery) -> None:
        """Pass on the events of an ended run: those of the stream, and from the ledger what the stream misses."""
        continuity = Continuity(target.after)
        try:
            async with aclosing(self._stored(target)) as slices:
                async for events in slices:
                    for batch in continuity.batches(events):
                        if await delivery.take(batch):
                            return
        except (RedisError, TimeoutError) as error:
            _log.warning("following.redis_unavailable", outage="redis", run_id=target.run_id, error=str(error))
        await delivery.finish_from_ledger()

    async def _stored(self, target: Target) -> AsyncGenerator[list[LiveEvent]]:
        """Yield the events of a stream from the entry at the cursor on, in slices.

        Raises:
            RedisError: Redis does not answer.
            TimeoutError: Redis does not answer in time.
        """
        async with aclosing(stored_pages(self._redis, target.run_id, target.after)) as pages:
            while True:
                async with asyncio.timeout(_REDIS_DEADLINE_S):
                    page = await anext(pages, None)
                if page is None:
                    return
                events: list[LiveEvent] = []
                for payload in page:
                    entry = decode(payload)
                    if len(events) + len(entry) > _SLICE_EVENTS:
                        yield events
                        await asyncio.sleep(0)
                        events = []
                    events += entry
                yield events

    async def _recorded(self, target: Target) -> RecordedRun | None:
        async with self._database.connection() as connection:
            return await load_recorded_run(connection, target.tenant_id, target.run_id)


def check_cursor(target: Target, state: RunState) -> None:
    """Check that the cursor of a target can belong to its run.

    Raises:
        CursorFromTheFuture: The cursor is beyond the run's newest event.
    """
    newest = state.final_event if state.ended else None
    if target.after.attempt > state.attempt or (newest is not None and target.after.key() > newest.key()):
        raise CursorFromTheFuture(
            f"{str(target.after)!r} is beyond the newest event of run {target.run_id!r}. "
            "Give the id of an event that this run sent, or none to begin at the start.",
            field="Last-Event-ID",
            attempt=state.attempt,
        )


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
        for start in range(0, len(events), _SLICE_EVENTS):
            if start:
                await asyncio.sleep(0)
            part = events[start : start + _SLICE_EVENTS]
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


class ExpectedEnd:
    """Follows a run within a block, for its end alone."""

    def __init__(
        self, redis: Redis, hub: StreamHub, watch: RunWatch, run_id: str, *, had_events: bool, after_attempt: int
    ) -> None:
        """Take what `RunFollower.expect_end` says."""
        self._hub = hub
        self._watch = watch
        self._run_id = run_id
        self._after_attempt = after_attempt
        self.final: LiveEvent | None = None
        """The last event of the run, if it ended by that."""
        self._outcome: asyncio.Future[Ending | Literal["timeout"]] = asyncio.get_running_loop().create_future()
        self._feed = EndFeed(redis, run_id, self._is_end, partial(self._settle, "over"), had_events=had_events)

    def __enter__(self) -> Self:
        self._hub.join(self._feed, self._run_id)
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.leave(self._feed, self._run_id)

    async def outcome(self, receive: Receive, *, timeout_s: float) -> Waited:
        """Wait for the end.

        Args:
            receive: Of the request.
            timeout_s: Longest wait.

        Raises:
            ClientDisconnect: The client has disconnected.
        """
        leaving = asyncio.create_task(until_gone(receive))
        leaving.add_done_callback(lambda _: self._settle("gone"))
        timer = asyncio.get_running_loop().call_later(timeout_s, self._settle, "timeout")
        try:
            with self._watch.watch(self._run_id, self._look) as woken:
                woken.add_done_callback(lambda woken: None if woken.cancelled() else self._settle(woken.result()))
                ending = await self._outcome
        finally:
            timer.cancel()
            leaving.cancel()
        if ending == "gone":
            raise ClientDisconnect
        return ending

    def _settle(self, ending: Ending | Literal["timeout"]) -> None:
        if not self._outcome.done():
            self._outcome.set_result(ending)

    def _look(self, found: SuspendedRun) -> None:
        if found.asks and found.attempt > self._after_attempt:
            self._settle("over")

    def _is_end(self, event: LiveEvent) -> bool:
        if event.event["type"] == "waiting":
            return event.cursor.attempt > self._after_attempt and event.event["kind"] in EXTERNAL_WAITS
        if is_final(event):
            self.final = event
            return True
        return False


async def until_first(
    work: Coroutine[Any, Any, None],
    woken: asyncio.Future[Wake],
    until_gone: Coroutine[Any, Any, None],
    every_s: float,
    on_idle: Callable[[], Awaitable[None]] | None = None,
) -> Literal["done", "over", "gone", "closing", "timeout"]:
    """Run `work` until it is done, the watch wakes us, or the client disconnects; no task outlives the call.

    Every `every_s` it calls `on_idle`; without `on_idle` it works for that long at most.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(until_gone)
    try:
        while True:
            done, _ = await asyncio.wait(
                {working, leaving, woken}, timeout=every_s, return_when=asyncio.FIRST_COMPLETED
            )
            if working in done:
                working.result()
                return "done"
            if leaving in done:
                return "gone"
            if woken in done:
                return woken.result()
            if on_idle is None:
                return "timeout"
            await on_idle()
    finally:
        await stop_tasks([working, leaving])
