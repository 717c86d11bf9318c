"""The reading side: one pub/sub connection serves all followers of a process.

A follower first waits for its subscription, then reads the existing entries of the stream, then receives new events.
It detects a gap (a message lost on a reconnect, an overflowed queue) by sequence numbers and fills it from the stream.
A gap of the stream itself (a trimmed or wiped stream, a worker lost with its buffer) is passed on as such.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple, cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.contracts.events import EventCursor
from nova_workers.keys import CONTROL_CHANNEL, orchestration_channel, run_channel, run_events
from nova_workers.observability.foreign import ForeignMessages
from nova_workers.streams.signals import Signal
from nova_workers.streams.subscriber import PING_EVERY_S, Subscriber
from nova_workers.streams.trees import TreeFeed
from nova_workers.streams.wire import FIELD, Continuity, LiveEvent, decode

__all__ = ["Batch", "Feed", "StreamHub"]

_log = structlog.get_logger(__name__)

_QUEUE_SIZE = 512
_RECONNECT_S = 0.25
_CATCH_UP_ENTRIES = 500
_LEFT_CHANNELS = 32
"""Channels without followers are unsubscribed in batches of this size. Until then they cost little: most of their runs
have ended."""


class Batch(NamedTuple):
    """Events that arrived together, without a gap between them."""

    events: list[LiveEvent]
    has_gap: bool
    """Whether events may be missing before the first one, also in the stream."""


class Feed:
    """The events of one run for one follower: in order, each once, without an end of its own."""

    def __init__(self, redis: Redis, run_id: str, after: EventCursor) -> None:
        self.run_id = run_id
        self._redis = redis
        self._continuity = Continuity(after)
        self._queue: asyncio.Queue[list[LiveEvent] | None] = asyncio.Queue(_QUEUE_SIZE)

    @property
    def cursor(self) -> EventCursor:
        """The id of the last event that was yielded."""
        return self._continuity.cursor

    def push(self, events: list[LiveEvent]) -> None:
        """Add published events."""
        try:
            self._queue.put_nowait(events)
        except asyncio.QueueFull:
            self.resync()

    def resync(self) -> None:
        """Make the follower read the stream from its cursor."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncGenerator[LiveEvent]:
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for event in batch.events:
                    yield event

    async def batches(self) -> AsyncGenerator[Batch]:
        """Like iterating over the feed, but yield events that arrived together in one batch."""
        while True:
            pushed = await self._queue.get()
            if pushed is None or self._is_gap(pushed):
                async for entry in self._catch_up():
                    for batch in self._whole(entry):
                        yield batch
            for batch in self._whole(pushed or []):
                yield batch

    def _is_gap(self, events: list[LiveEvent]) -> bool:
        if not events or self._continuity.is_next(events[0].cursor):
            return False
        fresh = next((event for event in events if event.cursor.key() > self.cursor.key()), None)
        return fresh is not None and not self._continuity.is_next(fresh.cursor)

    def _whole(self, events: list[LiveEvent]) -> Iterator[Batch]:
        """Drop events that were yielded before, and yield the rest in batches without gaps."""
        batch = Batch([], has_gap=False)
        continuity = self._continuity
        for event in events:
            if not continuity.is_next(event.cursor):
                if event.cursor.key() <= continuity.cursor.key():
                    continuity.recall(event)
                    continue
                if batch.events:
                    yield batch
                batch = Batch([], has_gap=True)
            batch.events.append(event)
            continuity.advance(event)
        if batch.events:
            yield batch

    async def _catch_up(self) -> AsyncIterator[list[LiveEvent]]:
        """Yield what the stream has from the entry at the cursor on: it shows whether an attempt ended there."""
        first = "-" if self.cursor.key() == EventCursor().key() else f"{self.cursor.attempt}-{self.cursor.seq}"
        while True:
            try:
                # Typed by hand: the client's own type allows for text answers, which `decode_responses` would give.
                entries: list[tuple[bytes, dict[bytes, bytes]]] = cast(
                    Any,
                    await self._redis.xrange(run_events(self.run_id), min=first, max="+", count=_CATCH_UP_ENTRIES),
                )
            except RedisError as error:
                # Drop events pushed meanwhile, which would hide the gap; the stream has them too.
                _log.warning("hub.catch_up_failed", run_id=self.run_id, error=str(error))
                await asyncio.sleep(_RECONNECT_S)
                continue
            for _, fields in entries:
                yield decode(fields.get(FIELD, b""))
            if len(entries) < _CATCH_UP_ENTRIES:
                return
            first = f"({entries[-1][0].decode()}"


class StreamHub:
    """Follows any number of runs over one Redis connection. Start `run` before the first `follow`."""

    def __init__(self, redis: Redis, foreign: ForeignMessages, *, ping_every_s: float = PING_EVERY_S) -> None:
        self._redis = redis
        self._foreign = foreign
        self._subscriber = Subscriber(redis, ping_every_s=ping_every_s)
        self._feeds: dict[str, set[Feed | TreeFeed | Signal]] = {}
        """By channel."""
        self._wanted: set[str] = set()
        self._subscribed: set[str] = set()
        self._is_connected = False
        self._reported = False
        """Whether the log has a line about the missing connection; an attempt follows in a moment."""
        self._lock = asyncio.Lock()

    @property
    def open_feeds(self) -> int:
        """How many followers there are."""
        return sum(len(feeds) for feeds in self._feeds.values())

    @asynccontextmanager
    async def follow(self, run_id: str, after: EventCursor) -> AsyncGenerator[Feed]:
        """Follow a run from a cursor on. ``async for cursor, event in feed`` never ends by itself.

        While Redis is unavailable the feed yields nothing; it catches up afterwards.
        """
        feed = Feed(self._redis, run_id, after)
        async with self._fed(feed, run_channel(run_id)):
            yield feed

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
    async def _fed(self, feed: Feed | TreeFeed | Signal, channel: str) -> AsyncGenerator[None]:
        feeds = self._feeds.setdefault(channel, set())
        feeds.add(feed)
        try:
            if channel in self._subscribed:
                feed.resync()
            await self._join(channel)
            yield
        finally:
            feeds.discard(feed)
            if not feeds:
                self._feeds.pop(channel, None)
                await self._leave()

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
                    _log.warning("hub.redis_unavailable", feeds=self.open_feeds, error=str(error))
                self._is_connected, self._reported = False, True
                self._subscribed.clear()
                await asyncio.sleep(_RECONNECT_S)
            except Exception:
                _log.exception("hub.failed")
                await asyncio.sleep(_RECONNECT_S)

    async def close(self) -> None:
        """Close the connection."""
        await self._subscriber.close()

    async def _subscribe_all(self) -> None:
        self._wanted |= self._feeds.keys()
        # An unused channel keeps the connection in subscribed mode while there are no feeds.
        await self._subscriber.subscribe(f"{CONTROL_CHANNEL}:hub", *self._wanted)
        self._is_connected = True
        # Followers that came meanwhile did not wait: it takes seconds while Redis does not answer.
        if late := self._feeds.keys() - self._wanted:
            self._wanted |= late
            await self._subscriber.subscribe(*late)

    async def _join(self, channel: str) -> None:
        """Subscribe, unless already subscribed, or as soon as there is a connection."""
        if not self._is_connected:
            return
        async with self._lock:
            if channel in self._wanted or channel not in self._feeds:
                return
            self._wanted.add(channel)
            try:
                await self._subscriber.subscribe(channel)
            except RedisError as error:
                # `run` subscribes to all that is wanted once Redis answers.
                _log.warning("hub.not_subscribed", channel=channel, error=str(error))

    async def _leave(self) -> None:
        """Unsubscribe from channels without followers, in batches: a command per run would be expensive."""
        if not self._is_connected or len(self._wanted) - len(self._feeds) < _LEFT_CHANNELS:
            return
        async with self._lock:
            left = self._wanted - self._feeds.keys()
            if not left:
                # Another task unsubscribed meanwhile. A command without names would unsubscribe from every channel.
                return
            self._wanted -= left
            self._subscribed -= left
            try:
                await self._subscriber.unsubscribe(*left)
            except RedisError as error:
                # A left-over subscription does no harm.
                _log.warning("hub.not_unsubscribed", channels=len(left), error=str(error))

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
            # Of an orchestration there is only a notification, without a payload.
            events = decode(data if isinstance(data, bytes) else str(data).encode()) if data else []
            if data and not events:
                self._foreign.drop("event", "unreadable", channel=channel)
                return
            for feed in feeds:
                feed.push(events)
