"""Follows a run to its end: live while it runs, from the ledger if the live stream has gaps or is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from nova_workers.base.stopping import stop_tasks
from nova_workers.base.vocabulary import EXTERNAL_WAITS
from nova_workers.contracts.events import EventCursor
from nova_workers.domain.runs.sql.reads import RunState, SuspendedRun, run_state
from nova_workers.domain.runs.sql.replay import RecordedRun, load_recorded_run
from nova_workers.domain.streams.rules.ends import EndFeed
from nova_workers.domain.streams.rules.hub import StreamHub
from nova_workers.domain.streams.rules.stored import stored_pages
from nova_workers.domain.streams.rules.wire import Continuity, LiveEvent, decode, is_final
from nova_workers.ledger.database import Database

from ..boundary import until_gone
from ..errors import CursorFromTheFuture
from .run_delivery import SLICE_EVENTS, Follower, RunDelivery
from .run_watch import RunWatch, Wake

_log = structlog.get_logger(__name__)

Ending = Literal["over", "gone", "closing"]
Waited = Literal["over", "closing", "timeout"]
"""Why following ended: the run ended, the client disconnected, or the process stops."""

_REDIS_DEADLINE_S = 1.0
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

    async def find(self, target: Target) -> RunState:
        """Return the state of a run, and check that the cursor can belong to it.

        Raises:
            NotFound: No such run in this tenant.
            CursorFromTheFuture: The cursor is beyond the run's newest event.
        """
        async with self._database.connection() as connection:
            state = await run_state(connection, target.tenant_id, target.run_id)
        newest = state.final_event if state.ended else None
        if target.after.attempt > state.attempt or (newest is not None and target.after.key() > newest.key()):
            raise CursorFromTheFuture(
                f"{str(target.after)!r} is beyond the newest event of run {target.run_id!r}. "
                "Give the id of an event that this run sent, or none to begin at the start.",
                field="Last-Event-ID",
                attempt=state.attempt,
            )
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
                    if len(events) + len(entry) > SLICE_EVENTS:
                        yield events
                        await asyncio.sleep(0)
                        events = []
                    events += entry
                yield events

    async def _recorded(self, target: Target) -> RecordedRun | None:
        async with self._database.connection() as connection:
            return await load_recorded_run(connection, target.tenant_id, target.run_id)


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
