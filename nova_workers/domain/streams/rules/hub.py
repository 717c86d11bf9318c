"""The reading side: one pub/sub connection serves all followers of a process.

A follower first waits for its subscription, then reads the existing entries of the stream, then receives new events.
It detects a gap (a message lost on a reconnect, an overflowed queue) by sequence numbers and fills it from the stream.
A gap of the stream itself (a trimmed or wiped stream, a worker lost with its buffer) is passed on as such.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.keys import CONTROL_CHANNEL, orchestration_channel, run_channel
from nova_workers.base.observability.foreign import ForeignMessages
from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.events import EventCursor
from nova_workers.domain.streams.rules.ends import SILENCE_S, EndFeed
from nova_workers.domain.streams.rules.signals import Signal
from nova_workers.domain.streams.rules.stored import stored_pages
from nova_workers.domain.streams.rules.subscriber import PING_EVERY_S, Subscriber
from nova_workers.domain.streams.rules.trees import TreeFeed
from nova_workers.domain.streams.rules.wire import Batch, Continuity, LiveEvent, decode

_log = structlog.get_logger(__name__)

_QUEUE_SIZE = 512
_RECONNECT_S = 0.25
_LEFT_CHANNELS = 32
"""Channels without followers are unsubscribed in batches of this size. Until then they cost little: most of their runs
have ended."""


_START_KEY = EventCursor().key()


class _Look(NamedTuple):
    attempt: int


class Feed:
    """The events of one run for one follower: in order, each once, without an end of its own."""

    def __init__(self, redis: Redis, run_id: str, after: EventCursor, *, had_events: bool = True) -> None:
        self.run_id = run_id
        self._redis = redis
        self._may_wait = not had_events
        self._continuity = Continuity(after)
        self._queue: asyncio.Queue[list[LiveEvent] | _Look | None] = asyncio.Queue(_QUEUE_SIZE)
        self._is_look_queued = False

    @property
    def cursor(self) -> EventCursor:
        """The id of the last event that was yielded."""
        return self._continuity.cursor

    def push(self, events: list[LiveEvent]) -> None:
        """Add published events; without any, look at the ledger: a run that was not begun is held."""
        if not events:
            if self.cursor.key() == _START_KEY:
                self.look(0)
            return
        try:
            self._queue.put_nowait(events)
        except asyncio.QueueFull:
            self.resync()

    def resync(self) -> None:
        """Make the follower read the stream from its cursor.

        After the first subscription to a run that had no events yet, this waits a moment: what arrives from its first
        event on makes it unnecessary, and what arrives without that shows a gap.
        """
        if self._may_wait and self._queue.empty():
            self._may_wait = False
            asyncio.get_running_loop().call_later(SILENCE_S, self._resync_if_silent)
            return
        while not self._queue.empty():
            self._queue.get_nowait()
        self._is_look_queued = False
        self._queue.put_nowait(None)

    def _resync_if_silent(self) -> None:
        if self._queue.empty() and self.cursor.key() == _START_KEY:
            self.resync()

    def look(self, attempt: int) -> None:
        """Make the follower read the stream, since an attempt ended a while ago.

        If the stream does not have this end, or Redis does not answer, `batches` yields a batch without events.
        """
        if not (self._continuity.has_ended(attempt) or self._is_look_queued or self._queue.full()):
            self._is_look_queued = True
            self._queue.put_nowait(_Look(attempt))

    async def batches(self) -> AsyncGenerator[Batch]:
        """Yield events in batches of those that arrived together. It never ends by itself."""
        while True:
            pushed = await self._queue.get()
            look = pushed if isinstance(pushed, _Look) else None
            if look is not None:
                self._is_look_queued = False
            events = pushed if isinstance(pushed, list) else []
            if not isinstance(pushed, list) or self._is_gap(events):
                async for entry in self._catch_up(is_patient=look is None):
                    for batch in self._continuity.batches(entry):
                        yield batch
            for batch in self._continuity.batches(events):
                yield batch
            if look is not None and not self._continuity.has_ended(look.attempt):
                yield Batch([], has_gap=True)

    def _is_gap(self, events: list[LiveEvent]) -> bool:
        if not events or self._continuity.is_next(events[0].cursor):
            return False
        fresh = next((event for event in events if event.cursor.key() > self.cursor.key()), None)
        return fresh is not None and not self._continuity.is_next(fresh.cursor)

    async def _catch_up(self, *, is_patient: bool) -> AsyncIterator[list[LiveEvent]]:
        """Yield the events of each entry that the stream has from the cursor on.

        While Redis does not answer it waits, or stops if it is not to be patient: the next events show the gap.
        """
        while True:
            try:
                async with aclosing(stored_pages(self._redis, self.run_id, self.cursor)) as pages:
                    async for page in pages:
                        for payload in page:
                            yield decode(payload)
                return
            except RedisError as error:
                _log.warning("hub.catch_up_failed", outage="redis", run_id=self.run_id, error=str(error))
                if not is_patient:
                    return
                await asyncio.sleep(_RECONNECT_S)


AnyFeed = Feed | EndFeed | TreeFeed | Signal


class StreamHub:
    """Follows any number of runs over one Redis connection. Start `run` before the first `follow`."""

    def __init__(self, redis: Redis, foreign: ForeignMessages, *, ping_every_s: float = PING_EVERY_S) -> None:
        self._redis = redis
        self._foreign = foreign
        self._subscriber = Subscriber(redis, ping_every_s=ping_every_s)
        self._feeds: dict[str, set[AnyFeed]] = {}
        """The feeds by channel."""
        self._wanted: set[str] = set()
        self._subscribed: set[str] = set()
        self._is_connected = False
        self._reported = False
        """Whether the log has a line about the missing connection; an attempt follows in a moment."""
        self._lock = asyncio.Lock()
        self._joining: set[str] = set()
        """Channels to subscribe to in the next command."""
        self._changing: asyncio.Task[None] | None = None

    @property
    def open_feeds(self) -> int:
        """How many followers there are."""
        return sum(len(feeds) for feeds in self._feeds.values())

    @asynccontextmanager
    async def follow(self, run_id: str, after: EventCursor, *, had_events: bool = True) -> AsyncGenerator[Feed]:
        """Follow a run from a cursor on.

        While Redis is unavailable the feed yields nothing; it catches up afterwards.

        Args:
            after: The cursor; the start if the run had no events.
            had_events: False if no worker had claimed the run a moment ago. Then its stream is not read at once.
        """
        feed = Feed(self._redis, run_id, after, had_events=had_events)
        async with self._fed(feed, run_channel(run_id)):
            yield feed

    def join(self, feed: EndFeed, run_id: str) -> None:
        """Let a feed notice what is published of a run, until `leave`. While Redis is unavailable that is nothing."""
        self._attach(feed, run_channel(run_id))

    def leave(self, feed: EndFeed, run_id: str) -> None:
        """Detach a feed from its run."""
        feed.close()
        self._detach(feed, run_channel(run_id))

    @asynccontextmanager
    async def follow_tree(self, orchestration_id: str) -> AsyncGenerator[TreeFeed]:
        """Follow an orchestration: the feed learns of new entries, and reads them from its stream."""
        feed = TreeFeed(self._redis, orchestration_id)
        async with self._fed(feed, orchestration_channel(orchestration_id)):
            yield feed

    @asynccontextmanager
    async def follow_signal(self, channel: str) -> AsyncGenerator[Signal]:
        """Follow a channel whose messages have no content."""
        signal = Signal()
        async with self._fed(signal, channel):
            yield signal

    @asynccontextmanager
    async def _fed(self, feed: AnyFeed, channel: str) -> AsyncGenerator[None]:
        self._attach(feed, channel)
        try:
            yield
        finally:
            self._detach(feed, channel)

    def _attach(self, feed: AnyFeed, channel: str) -> None:
        self._feeds.setdefault(channel, set()).add(feed)
        if channel in self._subscribed:
            feed.resync()
        if channel not in self._wanted:
            self._joining.add(channel)
            self._change_soon()

    def _detach(self, feed: AnyFeed, channel: str) -> None:
        feeds = self._feeds[channel]
        feeds.discard(feed)
        if not feeds:
            del self._feeds[channel]
            if self._has_left_many():
                self._change_soon()

    async def run(self) -> None:
        """Receive until canceled. Subscriptions are renewed after a lost connection."""
        while True:
            try:
                # Under the lock: of two concurrent connects, one would listen on a connection that the other replaced.
                async with self._lock:
                    await self._subscribe_all()
                while True:
                    self._take(await self._subscriber.receive())
            except RedisError as error:
                if self._is_connected or not self._reported:
                    _log.warning("hub.redis_unavailable", outage="redis", feeds=self.open_feeds, error=str(error))
                self._is_connected, self._reported = False, True
                self._subscribed.clear()
                await asyncio.sleep(_RECONNECT_S)
            except Exception:
                _log.exception("hub.failed")
                await asyncio.sleep(_RECONNECT_S)

    async def close(self) -> None:
        """Close the connection."""
        if self._changing is not None:
            await stop_tasks([self._changing])
        await self._subscriber.close()

    async def _subscribe_all(self) -> None:
        self._wanted |= self._feeds.keys()
        self._joining.clear()
        # An unused channel keeps the connection in subscribed mode while there are no feeds.
        await self._subscriber.subscribe(f"{CONTROL_CHANNEL}:hub", *self._wanted)
        self._is_connected = True
        # Followers that came meanwhile did not wait: it takes seconds while Redis does not answer.
        if late := self._feeds.keys() - self._wanted:
            self._wanted |= late
            await self._subscriber.subscribe(*late)

    def _change_soon(self) -> None:
        if self._is_connected and (self._changing is None or self._changing.done()):
            self._changing = asyncio.create_task(self._change())

    async def _change(self) -> None:
        """Subscribe and unsubscribe, with one command for all followers that came meanwhile."""
        while self._is_connected and (self._joining or self._has_left_many()):
            async with self._lock:
                await self._subscribe_to_new()
                await self._unsubscribe_from_left()

    async def _subscribe_to_new(self) -> None:
        new = (self._joining & self._feeds.keys()) - self._wanted
        self._joining.clear()
        if not new:
            return
        self._wanted |= new
        try:
            await self._subscriber.subscribe(*new)
        except RedisError as error:
            # `run` subscribes to all that is wanted once Redis answers.
            _log.warning("hub.not_subscribed", channels=len(new), error=str(error))

    async def _unsubscribe_from_left(self) -> None:
        """Unsubscribe from channels without followers, in batches: a command per run would be expensive."""
        # A command without names would unsubscribe from every channel.
        if not self._has_left_many() or not (left := self._wanted - self._feeds.keys()):
            return
        self._wanted -= left
        self._subscribed -= left
        try:
            await self._subscriber.unsubscribe(*left)
        except RedisError as error:
            # A left-over subscription does no harm.
            _log.warning("hub.not_unsubscribed", channels=len(left), error=str(error))

    def _has_left_many(self) -> bool:
        return len(self._wanted) - len(self._feeds) >= _LEFT_CHANNELS

    def _take(self, message: Mapping[str, object]) -> None:
        named = message["channel"]
        channel = named.decode() if isinstance(named, bytes) else str(named)
        feeds = self._feeds.get(channel, ())
        if message["type"] == "subscribe":
            # Also received after every reconnect: events that were published in between are in the stream. And received
            # when the last follower has just left: the next may come before the channel is unsubscribed.
            if channel in self._wanted:
                self._subscribed.add(channel)
            for feed in feeds:
                feed.resync()
        elif message["type"] == "message" and feeds:
            data = message["data"]
            payload = data if isinstance(data, bytes) else str(data).encode()
            wanting = [feed for feed in feeds if not isinstance(feed, EndFeed) or feed.wants(payload)]
            # Of an orchestration there is only a notification, without a payload; and of a run that is held.
            events = decode(payload) if payload and wanting else []
            if payload and wanting and not events:
                self._foreign.drop("event", "unreadable", channel=channel)
                return
            for feed in wanting:
                feed.push(events)
