"""A publisher and a hub for tests of both sides of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import cast

from redis.asyncio import Redis

from nova_workers.base.clock import Clock, SystemClock
from nova_workers.base.ids import new_id
from nova_workers.base.keys import run_events
from nova_workers.base.observability.foreign import ForeignMessages
from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.events import EventCursor, Token
from nova_workers.domain.streams.rules.hub import Feed, StreamHub
from nova_workers.domain.streams.rules.publisher import EventPublisher, RunEvents
from nova_workers.domain.streams.rules.subscriber import PING_EVERY_S
from nova_workers.domain.streams.rules.wire import FIELD, LiveEvent, decode

RUN = new_id("run")


@asynccontextmanager
async def publisher_on(
    redis: Redis, *, flush_ms: int = 20, clock: Clock | None = None
) -> AsyncGenerator[EventPublisher]:
    """Run a publisher."""
    publisher = EventPublisher(redis, flush_ms=flush_ms, clock=clock or SystemClock())
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        await stop_tasks([task])


@asynccontextmanager
async def hub_on(redis: Redis, *, ping_every_s: float = PING_EVERY_S) -> AsyncGenerator[StreamHub]:
    """Run a hub."""
    hub = StreamHub(redis, ForeignMessages(None), ping_every_s=ping_every_s)
    task = asyncio.create_task(hub.run())
    try:
        yield hub
    finally:
        await stop_tasks([task])
        await hub.close()


def say(events: RunEvents, *words: str) -> None:
    """Emit tokens."""
    for word in words:
        events.emit(Token(text=word))


async def stored(redis: Redis, run_id: str = RUN) -> list[LiveEvent]:
    """Return all events that the stream holds."""
    entries = cast(list[tuple[bytes, dict[bytes, bytes]]], await redis.xrange(run_events(run_id)))
    return [event for _, fields in entries for event in decode(fields[FIELD])]


def texts(events: list[LiveEvent]) -> list[str]:
    """Return ids and texts, as ``1-1 word``."""
    return [f"{event.cursor} {event.event.get('text', event.event['type'])}" for event in events]


async def collect(feed: Feed, upto: EventCursor, timeout_s: float = 60.0) -> list[LiveEvent]:
    """Return what a feed yields, up to an id."""
    seen: list[LiveEvent] = []
    async with asyncio.timeout(timeout_s), aclosing(feed.batches()) as batches:
        async for batch in batches:
            seen += batch.events
            if seen[-1].cursor.key() >= upto.key():
                break
    return seen
