"""The writing side of a run's stream."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from nova_workers.base.ids import new_id
from nova_workers.base.keys import EVENTS_TTL_S, run_events
from nova_workers.contracts.events import Reasoning, StreamEnd, Thinking, Token, event_adapter
from nova_workers.contracts.orchestration.events import OrchestrationEnd, TreeCursor, TreeNews, TreeRecord
from nova_workers.domain.streams.rules.publisher import RunEvents, TreeSource
from nova_workers.domain.streams.rules.trees import TreeFeed
from tests.requirements import proves
from tests.support.harness.manual_clock import ManualClock
from tests.support.servers.fault_proxy import FaultProxy
from tests.unit.streams.stage import RUN, publisher_on, say, stored, texts


@proves("events.ids", "events.batched")
async def test_events_have_ids_without_gaps_and_are_sent_in_batches(redis: Redis):
    async with publisher_on(redis) as publisher:
        events = publisher.open(RUN, 3)
        say(events, *"abcde")
        assert str(events.upcoming()) == "3-6"
        await publisher.drain(5)
    assert texts(await stored(redis)) == ["3-1 a", "3-2 b", "3-3 c", "3-4 d", "3-5 e"]
    assert await redis.xlen(run_events(RUN)) == 1
    assert (await redis.xinfo_stream(run_events(RUN)))["last-generated-id"] == b"3-5"


@proves("events.batched")
async def test_the_first_event_is_sent_at_once_and_later_ones_once_per_interval(redis: Redis):
    clock = ManualClock()
    async with publisher_on(redis, clock=clock) as publisher:
        events = publisher.open(RUN, 1)
        say(events, "first")
        await publisher.drain(5)
        say(events, "second", "third")
        await clock.read_again()
        assert texts(await stored(redis)) == ["1-1 first"]
        clock.advance(0.02)
        await publisher.drain(5)
    assert texts(await stored(redis))[1:] == ["1-2 second", "1-3 third"]
    assert await redis.xlen(run_events(RUN)) == 2


async def test_a_run_that_waits_for_its_interval_is_not_looked_at_again(redis: Redis):
    clock = ManualClock()
    async with publisher_on(redis, flush_ms=60_000, clock=clock) as publisher:
        events = publisher.open(RUN, 1)
        say(events, "first")
        await publisher.drain(5)
        say(events, "second")
        await clock.read_again(2)
        looked = clock.reads
        for word in ("third", "fourth"):
            say(events, word)
            for _ in range(5):
                await asyncio.sleep(0)
        assert clock.reads == looked
        events.emit(StreamEnd(run_id=RUN, final=True, status="succeeded"), urgent=True)
        await publisher.drain(5)
    assert texts(await stored(redis))[1:4] == ["1-2 second", "1-3 third", "1-4 fourth"]


async def test_an_urgent_event_is_sent_at_once_with_those_before_it(redis: Redis):
    async with publisher_on(redis, clock=ManualClock()) as publisher:
        events = publisher.open(RUN, 1)
        say(events, "first")
        await publisher.drain(5)
        say(events, "second")
        events.emit(StreamEnd(run_id=RUN, final=True, status="succeeded"), urgent=True)
        await publisher.drain(5)
    assert texts(await stored(redis)) == ["1-1 first", "1-2 second", "1-3 stream_end"]


async def test_an_orchestration_ends_after_its_masters_run_however_busy_the_publisher_is(redis: Redis):
    orchestration_id, run_id = new_id("orc"), new_id("run")
    async with publisher_on(redis) as publisher:
        events = publisher.open(run_id, 1, TreeSource(orchestration_id, "agt_master"))
        say(events, "done")
        await asyncio.sleep(0)
        assert len(events) == 0, "the first flush is on its way to Redis now"
        events.emit(StreamEnd(run_id=run_id, final=True, status="succeeded"), urgent=True)
        end = OrchestrationEnd(orchestration_id=orchestration_id, state="COMPLETED")
        publisher.announce_tree(TreeNews(orchestration_id=orchestration_id, records=(TreeRecord(event=end),)))
        await publisher.drain(5)
    items = await TreeFeed(redis, orchestration_id).read(TreeCursor())
    assert [item.record["event"]["type"] for item in items] == ["token", "stream_end", "orchestration_end"]


@proves("events.old-attempt")
async def test_a_worker_that_lost_its_run_cannot_write_to_its_stream(redis: Redis):
    async with publisher_on(redis, flush_ms=0) as publisher, publisher_on(redis, flush_ms=0) as other:
        old, new = publisher.open(RUN, 1), other.open(RUN, 2)
        say(old, "old")
        await publisher.drain(5)
        say(new, "new")
        await other.drain(5)
        say(old, "late")
        await publisher.drain(5)
        assert old.refused
        say(old, "later")
        assert len(old) == 0
    assert texts(await stored(redis)) == ["1-1 old", "2-1 new"]


@proves("events.redis-away", "events.ids")
async def test_a_flush_whose_reply_was_lost_does_not_silence_the_stream(redis: Redis, wire: FaultProxy):
    client = Redis.from_url(wire.url, retry=Retry(NoBackoff(), 0))
    async with publisher_on(client, flush_ms=0) as publisher:
        events = publisher.open(RUN, 1)
        say(events, "one")
        await publisher.drain(5)
        wire.answered.clear()
        wire.blocks_answers = True
        say(events, "two")
        await wire.answered.wait()
        assert texts(await stored(redis)) == ["1-1 one", "1-2 two"]
        wire.reset()
        wire.heal()
        await publisher.drain(5)
        say(events, "three")
        events.emit(StreamEnd(run_id=RUN, final=True, status="succeeded"), urgent=True)
        await publisher.drain(5)
    await client.aclose()
    assert not events.refused
    assert texts(await stored(redis)) == ["1-1 one", "1-2 two", "1-3 three", "1-4 stream_end"]


@proves("events.redis-away")
async def test_a_batch_whose_reply_was_lost_comes_once_on_the_stream_of_an_orchestration(
    redis: Redis, wire: FaultProxy
):
    orchestration_id, run_id = new_id("orc"), new_id("run")
    client = Redis.from_url(wire.url, retry=Retry(NoBackoff(), 0))
    async with publisher_on(client, flush_ms=0) as publisher:
        events = publisher.open(run_id, 1, TreeSource(orchestration_id, "agt_master"))
        say(events, "one")
        await publisher.drain(5)
        wire.answered.clear()
        wire.blocks_answers = True
        say(events, "two")
        await wire.answered.wait()
        say(events, "three")
        wire.reset()
        wire.heal()
        await publisher.drain(5)
    await client.aclose()
    assert texts(await stored(redis, run_id)) == ["1-1 one", "1-2 two", "1-3 three"]
    items = await TreeFeed(redis, orchestration_id).read(TreeCursor())
    assert [item.record["event_id"] for item in items] == ["1-1", "1-2", "1-3"]


@proves("events.redis-away")
async def test_events_wait_while_redis_is_unavailable(redis: Redis, wire: FaultProxy):
    client = Redis.from_url(wire.url, retry=Retry(NoBackoff(), 0))
    async with publisher_on(client, flush_ms=0) as publisher:
        events = publisher.open(RUN, 1)
        say(events, "one")
        await publisher.drain(5)
        wire.refuses = True
        wire.reset()
        say(events, "two", "three")
        await publisher.drain(0.1)
        publisher.announce_end("run_2", StreamEnd(run_id="run_2", final=True, status="canceled"))
        assert texts(await stored(redis)) == ["1-1 one"]
        wire.refuses = False
        await publisher.drain(5)
    await client.aclose()
    assert texts(await stored(redis)) == ["1-1 one", "1-2 two", "1-3 three"]
    assert texts(await stored(redis, "run_2")) == ["0-1 stream_end"]


async def test_while_redis_is_unavailable_the_newest_events_are_kept(redis: Redis, wire: FaultProxy):
    client = Redis.from_url(wire.url, retry=Retry(NoBackoff(), 0))
    async with publisher_on(client, flush_ms=0) as publisher:
        wire.refuses = True
        events = publisher.open(RUN, 1)
        for _ in range(5):
            _wait_for_model(events, 2_050)
            await publisher.drain(0.05)
        wire.refuses = False
        await publisher.drain(30)
    await client.aclose()
    kept = [event.cursor.seq for event in await stored(redis)]
    assert kept == [*range(1, 201), *range(251, 10_251)], "the batch in doubt is kept too"


async def test_an_event_has_the_time_at_which_it_was_emitted_and_joined_text_that_of_its_first_piece(redis: Redis):
    clock = ManualClock()
    times = [clock.now()]
    async with publisher_on(redis, clock=clock, flush_ms=0) as publisher:
        events = publisher.open(RUN, 1)
        events.emit(Token(text="\ud800 is half a character"))
        say(events, *"x" * 199)
        for piece in "yz":
            clock.advance(1.5)
            times.append(clock.now())
            events.emit(Token(text=piece))
        clock.advance(1.5)
        times.append(clock.now())
        events.emit(StreamEnd(run_id=RUN, final=True, status="succeeded"), urgent=True)
        await publisher.drain(5)
    sent = [event_adapter.validate_python(event.event) for event in await stored(redis)]
    assert [(event.type, event.at) for event in (sent[0], *sent[-2:])] == [
        ("token", times[0]),
        ("token", times[1]),
        ("stream_end", times[3]),
    ]


@proves("events.exact")
async def test_text_that_comes_faster_than_it_can_be_sent_is_joined_and_none_is_lost(redis: Redis):
    pieces = [f"{at} " for at in range(30_000)]
    async with publisher_on(redis) as publisher:
        events = publisher.open(RUN, 1)
        say(events, *pieces[:29_000])
        events.emit(Token(text="not of the answer", agent="helper"))
        events.emit(Reasoning(text="nor this"))
        say(events, *pieces[29_000:])
        events.emit(StreamEnd(run_id=RUN, final=True, status="succeeded"), urgent=True)
        last = events.upcoming(0)
        await publisher.drain(10)
    sent = await stored(redis)
    assert [event.cursor.seq for event in sent] == list(range(1, last.seq + 1))
    assert len(sent) < 400
    answer = [event.event["text"] for event in sent if event.event["type"] == "token" and "agent" not in event.event]
    assert "".join(answer) == "".join(pieces)
    assert answer[:200] == pieces[:200], "a model at an ordinary speed has each piece by itself"


async def test_a_run_keeps_a_bounded_amount_of_text_while_redis_is_unavailable(redis: Redis, wire: FaultProxy):
    client = Redis.from_url(wire.url, retry=Retry(NoBackoff(), 0))
    async with publisher_on(client, flush_ms=0) as publisher:
        wire.refuses = True
        events = publisher.open(RUN, 1)
        say(events, *("x" * 1_000 for _ in range(10_000)))
        await publisher.drain(0.05)
        wire.refuses = False
        await publisher.drain(10)
    await client.aclose()
    kept = await stored(redis)
    assert 1_500_000 < sum(len(event.event["text"]) for event in kept) <= 2_000_000
    assert kept[-1].cursor.seq - kept[0].cursor.seq == len(kept) - 1


async def test_a_batch_put_back_is_taken_again_unchanged_however_many_events_follow_it(redis: Redis):
    async with publisher_on(redis) as publisher:
        events = publisher.open(RUN, 1)
        _wait_for_model(events, 10_000)
        batch = events.take()
        _wait_for_model(events, 250)
        events.put_back(batch)
        assert len(events) == 10_200
        assert events.take() == batch
        assert [seq for seq, _ in events.take()] == [*range(251, 451)]


@proves("redis.ttl")
async def test_a_stream_has_a_ttl_that_is_renewed_also_after_a_wipe(redis: Redis):
    clock = ManualClock()
    async with publisher_on(redis, flush_ms=0, clock=clock) as publisher:
        events = publisher.open(RUN, 1)
        say(events, "one")
        await publisher.drain(5)
        assert 0 < await redis.ttl(run_events(RUN)) <= EVENTS_TTL_S
        await redis.expire(run_events(RUN), 100)
        clock.advance(11)
        say(events, "two")
        await publisher.drain(5)
        assert await redis.ttl(run_events(RUN)) > 100
        await redis.flushdb()
        clock.advance(11)
        say(events, "three")
        await publisher.drain(5)
        assert await redis.ttl(run_events(RUN)) > 100


@proves("input.any-text")
async def test_a_lone_surrogate_does_not_stop_a_stream(redis: Redis):
    async with publisher_on(redis) as publisher:
        events = publisher.open(RUN, 1)
        say(events, "a\ud83d", "b")
        await publisher.drain(5)
    assert texts(await stored(redis)) == ["1-1 a\ufffd", "1-2 b"]


async def test_events_of_many_runs_are_sent_in_one_round_trip(redis: Redis):
    async with publisher_on(redis) as publisher:
        for at in range(300):
            say(publisher.open(f"run_{at}", 1), "hello")
        await publisher.drain(5)
    info = await redis.info("commandstats")
    assert info["cmdstat_xadd"]["calls"] >= 300
    assert [texts(await stored(redis, f"run_{at}")) for at in (0, 299)] == [["1-1 hello"], ["1-1 hello"]]


def _wait_for_model(events: RunEvents, times: int) -> None:
    """Emit events that cannot be joined."""
    for _ in range(times):
        events.emit(Thinking())
