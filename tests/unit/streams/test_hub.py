"""The reading side of streams: followers join, leave, fall behind and are cut off; each gets every event once."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, aclosing

import pytest
from redis.asyncio import Redis

from nova_workers.base.ids import new_id
from nova_workers.base.keys import run_channel, run_events
from nova_workers.broker import redis_connections
from nova_workers.broker.redis_connections import connect
from nova_workers.contracts.events import EventCursor
from nova_workers.domain.streams.rules.hub import StreamHub
from nova_workers.domain.streams.rules.subscriber import Subscriber
from nova_workers.domain.streams.rules.wire import FIELD, Batch, encode
from tests.requirements import proves
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import stays, until
from tests.unit.streams.stage import RUN, collect, hub_on, publisher_on, say, texts

_START = EventCursor()


def _at(seq: int, attempt: int = 1) -> EventCursor:
    return EventCursor(attempt=attempt, seq=seq)


@proves("events.resume")
async def test_a_follower_gets_past_events_and_then_live_ones(redis: Redis):
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(redis) as hub:
        events = publisher.open(RUN, 1)
        say(events, "a", "b")
        await publisher.drain(5)
        async with hub.follow(RUN, _START) as feed:
            assert texts(await collect(feed, _at(2))) == ["1-1 a", "1-2 b"]
            say(events, "c")
            assert texts(await collect(feed, _at(3))) == ["1-3 c"]


@pytest.mark.parametrize("seen", range(6))
@proves("events.resume")
async def test_a_follower_that_resumes_from_any_id_misses_nothing_and_gets_nothing_twice(redis: Redis, seen: int):
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(redis) as hub:
        events = publisher.open(RUN, 1)
        say(events, "a", "b", "c")
        await publisher.drain(5)
        say(events, "d", "e")
        await publisher.drain(5)
        say(events, "f")
        async with hub.follow(RUN, _at(seen)) as feed:
            got = await collect(feed, _at(6))
    assert [event.cursor.seq for event in got] == list(range(seen + 1, 7))


@proves("input.foreign-messages")
async def test_garbage_on_a_channel_and_in_a_stream_is_left_out(redis: Redis):
    garbage = (b"no JSON", b"[]", b"null", b"7", b"\xff", b'{"a":1}', b'{"a":"x","e":[[1,{}]]}', b'{"a":1,"e":[[1,5]]}')
    async with hub_on(redis) as hub, hub.follow(RUN, _START) as feed:
        await _publish(redis, 1, stored=True)
        await collect(feed, _at(1))
        for at, payload in enumerate(garbage, start=2):
            await redis.publish(run_channel(RUN), payload)
            await redis.xadd(run_events(RUN), {FIELD: payload} if at % 2 else {b"x": b"y"}, id=f"1-{at}")
        await _publish(redis, 11, stored=True, pushed=False)
        await _publish(redis, 12, stored=True)
        assert [event.cursor.seq for event in await collect(feed, _at(12))] == [11, 12]


@pytest.mark.parametrize("pushed", [(), (3,), (2, 3)])
@proves("events.gap")
async def test_a_follower_of_a_run_without_events_gets_those_sent_before_its_subscription(
    redis: Redis, pushed: tuple[int, ...]
):
    async with hub_on(redis) as hub:
        for seq in {1, 2, 3}.difference(pushed):
            await _publish(redis, seq, stored=True)
        async with hub.follow(RUN, _START, had_events=False) as feed:
            for seq in pushed:
                await _publish(redis, seq, stored=True)
            assert texts(await collect(feed, _at(3))) == ["1-1 1", "1-2 2", "1-3 3"]


@proves("events.gap")
async def test_a_lost_message_is_read_from_the_stream(redis: Redis):
    async with hub_on(redis) as hub, hub.follow(RUN, _START) as feed:
        await _publish(redis, 1, stored=True)
        await collect(feed, _at(1))
        await _publish(redis, 2, stored=True, pushed=False)
        await _publish(redis, 3, stored=True)
        assert texts(await collect(feed, _at(3))) == ["1-2 2", "1-3 3"]


async def test_a_gap_of_the_stream_itself_is_passed_on(redis: Redis):
    async with hub_on(redis) as hub, hub.follow(RUN, _START) as feed:
        await _publish(redis, 1, stored=True)
        await collect(feed, _at(1))
        await _publish(redis, 5, stored=True)
        assert texts(await collect(feed, _at(5))) == ["1-5 5"]


async def test_events_of_an_older_attempt_are_dropped(redis: Redis):
    async with hub_on(redis) as hub, hub.follow(RUN, _START) as feed:
        await _publish(redis, 1, attempt=2, stored=True)
        await collect(feed, _at(1, attempt=2))
        await _publish(redis, 9, attempt=1, stored=False)
        await _publish(redis, 2, attempt=2, stored=True)
        assert texts(await collect(feed, _at(2, attempt=2))) == ["2-2 2"]


@proves("events.gap")
async def test_a_slow_follower_gets_missed_events_from_the_stream(redis: Redis):
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(redis) as hub:
        events = publisher.open(RUN, 1)
        async with hub.follow(RUN, _START) as slow, hub.follow(RUN, _START) as quick:
            say(events, "1")
            await collect(quick, _at(1))
            for at in range(2, 1_201):
                say(events, str(at))
                await publisher.drain(5)
            await collect(quick, _at(1_200))
            got = await collect(slow, _at(1_200))
    assert [event.cursor.seq for event in got] == list(range(1, 1_201))


@proves("events.one-connection")
async def test_one_connection_serves_all_followers(redis: Redis):
    mine = new_id("run")  # channels belong to the whole server, and other tests have theirs
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(redis) as hub:
        async with asyncio.TaskGroup() as group:
            for at in range(60):
                group.create_task(_follow(hub, f"{mine}_{at % 20}", upto=2))
            async with asyncio.timeout(60):
                while True:
                    if len(await redis.pubsub_channels(f"nova:run:{mine}*")) == 20:
                        break
                    await asyncio.sleep(0.005)
            assert hub.open_feeds == 60
            assert len(await redis.client_list(_type="pubsub")) == 1
            for at in range(20):
                say(publisher.open(f"{mine}_{at}", 1), "a", "b")
        assert hub.open_feeds == 0


async def test_channels_without_followers_are_unsubscribed_and_do_not_pile_up(redis: Redis):
    mine = new_id("run")
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(redis) as hub:
        most = 0
        for at in range(100):
            say(publisher.open(f"{mine}_{at}", 1), "a")
            await _follow(hub, f"{mine}_{at}", upto=1)
            most = max(most, len(await redis.pubsub_channels(f"nova:run:{mine}*")))
        assert most <= 33


@proves("events.resume")
async def test_a_run_can_be_followed_again(redis: Redis):
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(redis) as hub:
        events = publisher.open(RUN, 1)
        say(events, "a")
        await _follow(hub, RUN, upto=1)
        say(events, "b")
        await publisher.drain(5)
        async with hub.follow(RUN, _at(1)) as feed:
            assert texts(await collect(feed, _at(2))) == ["1-2 b"]
            say(events, "c")
            assert texts(await collect(feed, _at(3))) == ["1-3 c"]
        # Now with its channel really left, along with enough others.
        for at in range(40):
            say(publisher.open(f"{RUN}_{at}", 1), "a")
            await _follow(hub, f"{RUN}_{at}", upto=1)
        assert run_channel(RUN).encode() not in await redis.pubsub_channels("nova:run:*")
        say(events, "d")
        await publisher.drain(5)
        async with hub.follow(RUN, _at(3)) as feed:
            assert texts(await collect(feed, _at(4))) == ["1-4 d"]
            say(events, "e")
            assert texts(await collect(feed, _at(5))) == ["1-5 e"]


@proves("events.resume")
async def test_followers_keep_receiving_while_many_others_join_and_leave(redis: Redis):
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(redis) as hub:
        events = publisher.open(RUN, 1)
        async with hub.follow(RUN, _START) as feed:
            say(events, "a")
            await collect(feed, _at(1))
            until = asyncio.Event()
            others: list[asyncio.Task[None]] = []
            for wave in range(4):
                leaving, until = until, asyncio.Event()
                others += [asyncio.create_task(_stay(hub, f"{RUN}_{wave}_{at}", until)) for at in range(100)]
                # The next ones join while these leave.
                leaving.set()
                await asyncio.sleep(0.01)
            until.set()
            await asyncio.gather(*others)
            say(events, "b")
            assert texts(await collect(feed, _at(2))) == ["1-2 b"]


async def _stay(hub: StreamHub, run_id: str, until: asyncio.Event) -> None:
    async with hub.follow(run_id, _START):
        await until.wait()


async def _follow(hub: StreamHub, run_id: str, upto: int) -> None:
    async with hub.follow(run_id, _START) as feed:
        got = await collect(feed, _at(upto))
        assert [event.cursor.seq for event in got] == list(range(1, upto + 1))


@proves("events.redis-away", "events.gap")
async def test_followers_continue_after_a_broken_connection(redis: Redis, wire: FaultProxy):
    client = Redis.from_url(wire.url)
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(client) as hub:
        events = publisher.open(RUN, 1)
        async with hub.follow(RUN, _START) as feed:
            say(events, "a")
            await collect(feed, _at(1))
            wire.refuses = True
            wire.reset()
            say(events, "b", "c")
            await publisher.drain(5)
            wire.refuses = False
            assert texts(await collect(feed, _at(3))) == ["1-2 b", "1-3 c"]
            say(events, "d")
            assert texts(await collect(feed, _at(4))) == ["1-4 d"]
    await client.aclose()


@pytest.mark.parametrize("fault", ["forget", "blocks_answers", "blocks_requests"])
@proves("events.redis-away", "events.gap")
async def test_followers_continue_after_a_connection_dies_without_a_packet(redis: Redis, wire: FaultProxy, fault: str):
    client = connect(wire.url)
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(client, ping_every_s=0.1) as hub:
        first, second = publisher.open(RUN, 1), publisher.open("run_2", 1)
        async with hub.follow(RUN, _START) as feed:
            say(first, "a")
            await collect(feed, _at(1))
            if fault == "forget":
                wire.forget()
            else:
                setattr(wire, fault, True)
            async with hub.follow("run_2", _START) as other:
                connections = wire.accepted
                # In two of these cases the old connection still brings messages of its channels.
                while wire.accepted == connections:
                    say(first, "x")
                    say(second, "x")
                    await asyncio.sleep(0.02)
                wire.heal()
                say(first, "end")
                say(second, "end")
                await publisher.drain(5)
                for events, follower in ((first, feed), (second, other)):
                    newest = int(str(events.upcoming(0)).partition("-")[2])
                    got = await collect(follower, _at(newest))
                    assert [event.cursor.seq for event in got][-2:] == [newest - 1, newest]
    await client.aclose()


@proves("events.redis-away")
async def test_a_new_connection_is_not_closed_for_what_the_one_before_it_did_not_answer(redis: Redis, wire: FaultProxy):
    ping_every_s, channel = 0.5, new_id("run")
    client = connect(wire.url)
    subscriber = Subscriber(client, ping_every_s=ping_every_s)
    await subscriber.subscribe(channel)
    assert (await subscriber.receive())["type"] == "subscribe"
    receiving = asyncio.create_task(subscriber.receive())
    wire.blocks_answers = True
    await until(lambda: subscriber._unanswered == 2)  # pyright: ignore[reportPrivateUsage] - one ping later it is dead
    wire.heal()
    wire.reset()
    assert (await receiving)["type"] == "subscribe", "on a new connection"
    receiving = asyncio.create_task(subscriber.receive())
    await stays(lambda: not receiving.done(), for_s=1.5 * ping_every_s)
    await redis.publish(channel, "x")
    assert (await receiving)["data"] == b"x"
    assert wire.accepted == 2
    await subscriber.close()
    await client.aclose()


@proves("events.redis-away")
async def test_a_follower_that_joins_while_redis_is_unavailable_is_served_later(redis: Redis, wire: FaultProxy):
    client = Redis.from_url(wire.url)
    wire.refuses = True
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(client) as hub:
        say(publisher.open(RUN, 1), "a", "b")
        await publisher.drain(5)
        async with hub.follow(RUN, _START) as feed:
            wire.refuses = False
            assert texts(await collect(feed, _at(2))) == ["1-1 a", "1-2 b"]
    await client.aclose()


@proves("events.redis-away")
async def test_a_look_at_a_run_that_waits_ends_although_redis_is_unavailable(redis: Redis, wire: FaultProxy):
    client = Redis.from_url(wire.url)
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(client) as hub, hub.follow(RUN, _START) as feed:
        events = publisher.open(RUN, 1)
        say(events, "a")
        await collect(feed, _at(1))
        wire.refuses = True
        wire.reset()
        for _ in range(3):
            feed.look(1)
        async with asyncio.timeout(60), aclosing(feed.batches()) as batches:
            assert await anext(batches) == Batch([], has_gap=True)
            wire.refuses = False
            say(events, "b")
            assert texts((await anext(batches)).events) == ["1-2 b"], "one look at a time"
    await client.aclose()


@proves("events.redis-away")
async def test_followers_do_not_wait_for_a_redis_that_cannot_be_reached(
    redis: Redis, wire: FaultProxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(redis_connections, "_REPLY_S", 120.0)
    client = connect(wire.url)
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(client) as hub, AsyncExitStack() as stack:
        async with hub.follow(RUN, _START):
            wire.blocks_requests = True
            connections = wire.accepted
            wire.reset()
            # The hub connects now, which takes minutes: nothing answers.
            await until(lambda: wire.accepted > connections)
            async with asyncio.timeout(60):
                async with hub.follow("run_2", _START):
                    pass
                feed = await stack.enter_async_context(hub.follow("run_3", _START))
            say(publisher.open("run_3", 1), "a")
            wire.heal()
            assert texts(await collect(feed, _at(1))) == ["1-1 a"]
    await client.aclose()


async def test_followers_that_join_and_leave_at_any_moment_each_see_everything(redis: Redis):
    chance = random.Random(7)
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(redis) as hub:
        runs = {f"{RUN}_{at}": publisher.open(f"{RUN}_{at}", 1) for at in range(3)}

        async def come_and_go(run_id: str) -> None:
            for _ in range(15):
                upto = chance.randrange(0, 30)
                async with hub.follow(run_id, _START) as feed:
                    for _ in range(chance.randrange(3)):
                        await asyncio.sleep(0)
                    if upto:
                        got = await collect(feed, _at(upto))
                        assert [event.cursor.seq for event in got][:upto] == list(range(1, upto + 1))

        async with asyncio.TaskGroup() as group:
            for run_id in [*runs] * 4:
                group.create_task(come_and_go(run_id))
            for _ in range(30):
                for events in runs.values():
                    say(events, "x")
                await asyncio.sleep(0.002)
    assert hub.open_feeds == 0


async def test_a_follower_that_joins_while_its_channel_is_being_unsubscribed_is_served(redis: Redis):
    """The confirmation of the channel arrives when it has no follower; the next one must not wait for another."""
    async with publisher_on(redis, flush_ms=0) as publisher, hub_on(redis) as hub:
        say(publisher.open(RUN, 1), "a")
        await publisher.drain(5)
        first = hub.follow(RUN, _START)
        await first.__aenter__()
        wanted, subscribed = hub._wanted, hub._subscribed  # pyright: ignore[reportPrivateUsage] - sent, and confirmed
        await _contains(wanted, run_channel(RUN))
        await first.__aexit__(None, None, None)
        await _contains(subscribed, run_channel(RUN))
        await _follow(hub, RUN, upto=1)


async def _contains(channels: set[str], channel: str) -> None:
    """Wait until a channel is in a set, and return in the same moment."""
    async with asyncio.timeout(60):
        while True:
            if channel in channels:
                return
            await asyncio.sleep(0)


async def _publish(redis: Redis, seq: int, *, attempt: int = 1, stored: bool, pushed: bool = True) -> None:
    payload = encode(attempt, [(seq, b'{"type":"token","text":"%d"}' % seq)])
    if stored:
        await redis.xadd(run_events(RUN), {FIELD: payload}, id=f"{attempt}-{seq}")
    if pushed:
        await redis.publish(run_channel(RUN), payload)
