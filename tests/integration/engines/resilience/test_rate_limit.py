"""The operator's rate limit holds for all workers together; a call that is over it waits."""

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise

from redis.asyncio import Redis

from nova_workers.contracts.abort import AbortSignal
from nova_workers.engines.resilience import RateLimit, RateLimiter
from nova_workers.engines.resilience.limiter import Grant
from tests.integration.engines.resilience.stage import FINE, CountingMetrics, MakeEngine, keys_used, turn
from tests.support.servers.model_server import ModelServer, Part, Stream
from tests.support.waiting import until

THREE = {"*": RateLimit(requests=3)}


class Arrivals:
    """The times of requests."""

    def __init__(self, server: ModelServer) -> None:
        self.times_s: list[float] = []
        server.reply_when(self._note, FINE)

    def _note(self, *_: object) -> bool:
        self.times_s.append(time.monotonic())
        return True

    def most_in(self, window_s: float) -> int:
        """Return the most requests of any window."""
        return max(sum(start <= at < start + window_s for at in self.times_s) for start in self.times_s)


class CountedLimiter(RateLimiter):
    """A limiter that counts the calls that asked for permission."""

    asked = 0

    async def take(self, profiles: Sequence[str], model: str, tokens: int) -> Grant:
        self.asked += 1
        return await super().take(profiles, model, tokens)


async def test_two_workers_together_never_exceed_it_and_no_turn_fails(
    server: ModelServer, make: MakeEngine, redis: Redis, counts: CountingMetrics
) -> None:
    arrivals = Arrivals(server)
    first, second = (make(redis=redis, limits=THREE, window_s=2) for _ in range(2))
    results = await asyncio.gather(*(turn(engine) for engine in (first, second) for _ in range(3)))
    assert [result.text for result in results] == ["Well done"] * 6
    # A request is on its way for a while, on a busy machine for longer: they may come closer together than they left.
    assert arrivals.most_in(1.5) <= 3
    assert max(waited_s for _, waited_s in counts.waits) > 1


async def test_the_calls_of_a_process_wait_in_order(server: ModelServer, make: MakeEngine) -> None:
    server.reply(FINE)
    engine = make(limits={"*": RateLimit(requests=2)})
    await asyncio.gather(*(turn(engine, str(number)) for number in range(5)))
    order = [int(body["messages"][0]["content"][0]["text"]) for body in server.requests]
    assert all(before // 2 <= after // 2 for before, after in pairwise(order))


async def test_each_key_and_each_model_has_its_own(server: ModelServer, make: MakeEngine, redis: Redis) -> None:
    server.reply(FINE)
    one = {"*": RateLimit(requests=1)}
    engine = make("a", "b", redis=redis, limits=one, window_s=600)
    async with asyncio.timeout(60):
        await turn(engine)
        await turn(engine)
        await turn(engine, model="claude-haiku-4-5")
    assert keys_used(server) == ["a", "b", "a"]


async def test_a_model_without_a_limit_does_not_wait(
    server: ModelServer, make: MakeEngine, counts: CountingMetrics
) -> None:
    server.reply(FINE)
    engine = make(limits={"claude-haiku-4-5": RateLimit(requests=1)}, window_s=600)
    async with asyncio.timeout(60):
        for _ in range(3):
            await turn(engine)
    assert counts.waits == []


async def test_used_tokens_make_the_next_call_wait(
    server: ModelServer, make: MakeEngine, redis: Redis, counts: CountingMetrics
) -> None:
    server.reply(Stream(FINE.parts, usage={"input_tokens": 900, "output_tokens": 100}))
    engine = make(redis=redis, limits={"*": RateLimit(tokens=1_000)}, window_s=6)
    await turn(engine)
    await turn(engine)
    # The first was let through by its estimate of a few tokens, and used all there are.
    assert [waited_s > 0.5 for _, waited_s in counts.waits] == [False, True]


async def test_estimated_tokens_that_were_not_used_are_returned(
    server: ModelServer, make: MakeEngine, redis: Redis
) -> None:
    server.reply(Stream(FINE.parts, usage={"input_tokens": 10, "output_tokens": 1}))
    engine = make(redis=redis, limits={"*": RateLimit(tokens=1_000)}, window_s=600)
    async with asyncio.timeout(60):
        for _ in range(5):
            await turn(engine, "z" * 1_400)


async def test_tokens_read_from_the_cache_do_not_count(server: ModelServer, make: MakeEngine, redis: Redis) -> None:
    usage = {"input_tokens": 5, "output_tokens": 5, "cache_read_input_tokens": 50_000}
    server.reply(Stream(FINE.parts, usage=usage))
    engine = make(redis=redis, limits={"*": RateLimit(tokens=1_000)}, window_s=600)
    async with asyncio.timeout(60):
        for _ in range(5):
            await turn(engine)


async def test_a_request_larger_than_the_limit_takes_it_whole(
    server: ModelServer, make: MakeEngine, redis: Redis
) -> None:
    server.reply(FINE)
    engine = make(redis=redis, limits={"*": RateLimit(tokens=100)}, window_s=600)
    async with asyncio.timeout(60):
        assert (await turn(engine, "z" * 10_000)).text == "Well done"


async def test_an_abort_ends_the_wait_for_the_rate_limit(server: ModelServer, make: MakeEngine, redis: Redis) -> None:
    server.reply(FINE)
    limiter = CountedLimiter({"*": RateLimit(requests=1)}, redis=redis)
    engine = make(redis=redis, limiter=limiter)
    await turn(engine)
    abort = AbortSignal()
    running = [asyncio.create_task(turn(engine, abort=abort)) for _ in range(3)]
    await until(lambda: limiter.asked == 4)
    abort.abort("cancel")
    results = await asyncio.wait_for(asyncio.gather(*running), 60)
    assert {result.stop_reason for result in results} == {"aborted"}
    assert len(server.requests) == 1


async def test_waiting_for_the_rate_limit_counts_as_waiting_for_the_model(
    server: ModelServer, make: MakeEngine, redis: Redis
) -> None:
    server.reply(FINE)
    engine = make(redis=redis, limits={"*": RateLimit(requests=1)}, window_s=600)
    await turn(engine)
    assert (await turn(engine, reasoning_timeout_s=0.1)).stop_reason == "timeout"


async def test_without_redis_a_process_applies_the_limit_by_itself(server: ModelServer, make: MakeEngine) -> None:
    arrivals = Arrivals(server)
    away = Redis.from_url("unix:///nowhere/valkey.sock")
    engine = make(redis=away, limits=THREE, window_s=2)
    results = await asyncio.gather(*(turn(engine) for _ in range(5)))
    assert [result.text for result in results] == ["Well done"] * 5
    assert arrivals.most_in(1.5) <= 3
    await away.aclose()


async def test_the_keys_of_a_window_expire(server: ModelServer, make: MakeEngine, redis: Redis) -> None:
    server.reply(Stream((Part("text", ["x"]),)))
    await turn(make(redis=redis, limits={"*": RateLimit(requests=5, tokens=10_000)}, window_s=600))
    names = [name async for name in redis.scan_iter("*limits*")]
    assert len(names) == 2
    assert all([0 < await redis.ttl(name) <= 600 for name in names])
