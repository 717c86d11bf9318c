"""A follower that waits for the end of a run only: it notices it, however it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from nova_workers.base.ids import new_id
from nova_workers.base.keys import run_channel, run_events
from nova_workers.broker.redis_connections import connect
from nova_workers.domain.streams.rules.ends import EndFeed
from nova_workers.domain.streams.rules.hub import StreamHub
from nova_workers.domain.streams.rules.wire import FIELD, is_final
from tests.requirements import proves
from tests.support.waiting import stays, until
from tests.unit.streams.stage import RUN, hub_on

_TOKEN = b'{"type":"token","text":"hm"}'
_PAUSE = b'{"type":"stream_end","final":false}'
_END = b'{"type":"stream_end","final":true}'


@asynccontextmanager
async def _waiting(redis: Redis, hub: StreamHub, *, had_events: bool = False) -> AsyncGenerator[asyncio.Event]:
    ended = asyncio.Event()
    feed = EndFeed(redis, RUN, is_final, ended.set, had_events=had_events)
    hub.join(feed, RUN)
    try:
        yield ended
    finally:
        hub.leave(feed, RUN)


async def _send(redis: Redis, seq: int, event: bytes, *, attempt: int = 1, pushed: bool = True) -> None:
    payload = b'{"a":%d,"e":[[%d,%s]]}' % (attempt, seq, event)
    await redis.xadd(run_events(RUN), {FIELD: payload}, id=f"{attempt}-{seq}")
    if pushed:
        await redis.publish(run_channel(RUN), payload)


async def _is_subscribed(redis: Redis) -> bool:
    return bool((await redis.pubsub_numsub(run_channel(RUN)))[0][1])


@proves("events.gap")
@pytest.mark.parametrize("pushed", [(), (3,), (2, 3), (1, 2, 3)])
async def test_the_end_is_noticed_whichever_events_came_before_the_subscription(
    redis: Redis, pushed: tuple[int, ...]
) -> None:
    events = {1: _TOKEN, 2: _END, 3: _TOKEN}
    async with hub_on(redis) as hub:
        for seq in sorted({1, 2, 3}.difference(pushed)):
            await _send(redis, seq, events[seq])
        async with _waiting(redis, hub) as ended:
            await until(lambda: _is_subscribed(redis))
            for seq in pushed:
                await _send(redis, seq, events[seq])
            await until(ended.is_set)


async def test_the_end_of_a_run_that_never_began_is_noticed(redis: Redis) -> None:
    async with hub_on(redis) as hub, _waiting(redis, hub) as ended:
        await until(lambda: _is_subscribed(redis))
        await _send(redis, 1, _END, attempt=0)
        await until(ended.is_set)


async def test_other_events_and_the_end_of_an_attempt_are_no_end(redis: Redis) -> None:
    async with hub_on(redis) as hub, _waiting(redis, hub, had_events=True) as ended:
        await until(lambda: _is_subscribed(redis))
        await _send(redis, 1, b'{"type":"token","text":"\\"stream_end\\""}')
        await _send(redis, 2, _PAUSE)
        await stays(lambda: not ended.is_set(), for_s=0.3)
        await _send(redis, 1, _END, attempt=2)
        await until(ended.is_set)


@proves("events.gap")
async def test_an_end_that_was_sent_while_the_connection_was_lost_is_noticed(redis: Redis, redis_url: str) -> None:
    name = new_id("run")
    own = connect(redis_url, name)
    async with hub_on(own) as hub, _waiting(own, hub) as ended:
        await until(lambda: _is_subscribed(redis))
        await _send(redis, 1, _TOKEN)
        await _send(redis, 2, _END, pushed=False)
        for client in await redis.client_list():
            if client["name"] == name:
                await redis.client_kill_filter(_id=client["id"])
        await until(ended.is_set)
    await own.aclose()


async def test_garbage_on_the_channel_is_left_out(redis: Redis) -> None:
    async with hub_on(redis) as hub, _waiting(redis, hub) as ended:
        await until(lambda: _is_subscribed(redis))
        for payload in (b"", b"no JSON", b'"stream_end"', b'{"a":1,"e":[]}', b'{"a":1,"e":[[1,5]]}'):
            await redis.publish(run_channel(RUN), payload)
        await _send(redis, 1, _END)
        await until(ended.is_set)
