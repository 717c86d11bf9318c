"""Breakers and cool-downs: the store in Redis and its twin in memory do the same."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import cast

import pytest
from redis.asyncio import Redis

from nova_workers.engines.resilience import (
    Failure,
    HealthKeys,
    Policy,
    RateLimiter,
    RedisHealth,
    Resilience,
    SharedHealth,
)
from nova_workers.engines.resilience.health import Health, HealthStore
from nova_workers.engines.resilience.memory_health import MemoryHealth
from nova_workers.engines.resilience.shared import Call
from tests.integration.engines.resilience.stage import FakeClock

POLICY = Policy(
    breaker_open_s=0.1,
    breaker_open_cap_s=0.25,
    probe_hold_s=0.25,
    conversation_memory_s=0.5,
    rate_cooldown_s=0.1,
    rate_cooldown_cap_s=0.35,
    auth_cooldown_s=10.0,
    auth_cooldown_cap_s=30.0,
    health_cache_s=60.0,
)


@dataclass
class Stage:
    """A store, and how time passes for it."""

    store: HealthStore
    passes: Callable[[float], Awaitable[None]]
    now_s: Callable[[], float]

    async def admit(self, conversation: str = "new", *profiles: str) -> Health:
        return await self.store.admit("m", profiles or ("p",), conversation)

    async def fail(self, conversation: str, answered_ago_s: float | None = None) -> bool:
        return await self.store.fail("m", Failure(conversation, "broken", answered_ago_s))

    async def open(self) -> None:
        """Let two conversations fail."""
        assert [await self.fail("bad"), await self.fail("worse")] == [False, True]

    async def probe(self, conversation: str) -> None:
        health = await self.admit(conversation)
        assert (health.wait_s, health.breaker) == (0, "probe")


class MovedRedis:
    """The scripts of the store in Redis, with a clock that stands still until it is moved.

    The time is read from a list of seconds and microseconds, as `TIME` returns them. Keys live a thousand times as long
    as the scripts say, so that hardly any of their lives passes by itself.
    """

    _TIME_KEY = "time-of-the-test"
    _LIFE = 1_000

    def __init__(self, redis: Redis, clock: FakeClock) -> None:
        self._redis = redis
        self._clock = clock

    @classmethod
    def script(cls, name: str) -> str:
        """Return a script that reads this clock."""
        text = files("nova_workers.engines.resilience").joinpath(name).read_text("utf-8")
        text = text.replace("redis.call('TIME')", f"redis.call('LRANGE', '{cls._TIME_KEY}', 0, 1)")
        text = re.sub(r"(redis\.call\('PTTL', KEYS\[\d\]\))", rf"math.floor(\1 / {cls._LIFE})", text)
        return re.sub(r"('PEXPIRE', KEYS\[\d\], )(.*)\)$", rf"\1math.floor((\2) * {cls._LIFE}))", text, flags=re.M)

    async def passes(self, seconds: float) -> None:
        """Move the clock, and let the keys expire whose lives end meanwhile."""
        self._clock.now_s += seconds
        whole_s, part_s = divmod(self._clock.now_s, 1)
        async with self._redis.pipeline() as pipeline:
            pipeline.delete(self._TIME_KEY)
            pipeline.rpush(self._TIME_KEY, int(whole_s), round(part_s * 1_000_000))
            await pipeline.execute()
        async for key in self._redis.scan_iter():
            if (life_ms := await self._redis.pttl(key)) > 0:
                await self._redis.pexpire(key, round(life_ms - seconds * 1000 * self._LIFE))


@pytest.fixture(params=["memory", "redis"])
async def stage(
    request: pytest.FixtureRequest,
    redis: Redis,
    health_keys: HealthKeys,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> Stage:
    """A store whose clock stands still until it is moved. `test_breaker` and others have Redis with its own clock."""
    if request.param == "memory":

        async def move(seconds: float) -> None:
            clock.now_s += seconds

        return Stage(MemoryHealth(POLICY, clock), move, clock)
    moved = MovedRedis(redis, clock)
    monkeypatch.setattr("nova_workers.engines.resilience.redis_health._script", MovedRedis.script)
    await moved.passes(1_000_000.0)
    return Stage(RedisHealth(redis, health_keys, POLICY, clock), moved.passes, clock)


async def test_one_conversation_does_not_open_it_however_often_it_fails(stage: Stage) -> None:
    assert not any([await stage.fail("bad") for _ in range(20)])
    health = await stage.admit()
    assert (health.wait_s, health.breaker, health.failures) == (0, "closed", 1)


async def test_a_second_conversation_opens_it(stage: Stage) -> None:
    await stage.open()
    health = await stage.admit()
    assert 0.05 < health.wait_s <= 0.101
    assert (health.breaker, health.failures) == ("open", 2)


async def test_a_success_between_them_keeps_it_closed(stage: Stage) -> None:
    await stage.fail("bad")
    await stage.store.recover("m", "good")
    assert not await stage.fail("worse")
    assert (await stage.admit()).failures == 1


async def test_an_unreported_success_of_the_same_process_counts_as_well(stage: Stage) -> None:
    await stage.fail("bad")
    await stage.passes(0.02)
    assert not await stage.fail("worse", answered_ago_s=0.01)
    assert await stage.fail("worst", answered_ago_s=0.5)


async def test_conversations_that_failed_before_a_success_of_another_are_not_counted_again(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.11)
    await stage.probe("good")
    await stage.store.recover("m", "good")
    for _ in range(3):
        assert [await stage.fail("bad"), await stage.fail("worse")] == [False, False]
    assert (await stage.admit()).breaker == "closed"
    assert not await stage.fail("a")
    assert await stage.fail("b")


async def test_a_conversation_that_got_a_response_is_counted_again(stage: Stage) -> None:
    await stage.fail("a")
    await stage.store.recover("m", "b")
    await stage.store.recover("m", "a")
    await stage.fail("a")
    assert await stage.fail("b")


async def test_a_conversation_that_fails_by_itself_is_forgotten_after_a_while(stage: Stage) -> None:
    await stage.fail("a")
    await stage.store.recover("m", "b")
    await stage.passes(0.51)
    await stage.fail("a")
    assert await stage.fail("b")


async def test_failures_while_it_is_open_do_not_extend_the_time(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.06)
    assert await stage.fail("late")
    assert (await stage.admit()).wait_s <= 0.05


async def test_after_its_time_one_call_is_admitted(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.11)
    await stage.probe("a")
    waits = [(await stage.admit(name)).wait_s for name in ("b", "c", "a")]
    assert all(0 < wait_s <= 0.5 for wait_s in waits)


async def test_the_probe_is_of_a_conversation_that_has_not_failed_if_one_waits(stage: Stage) -> None:
    await stage.open()
    assert (await stage.admit("bad")).wait_s
    assert (await stage.admit("good")).wait_s
    await stage.passes(0.11)
    assert 0 < (await stage.admit("bad")).wait_s <= 0.5
    await stage.probe("good")


async def test_without_another_the_probe_is_of_one_that_failed(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.11)
    await stage.probe("bad")


async def test_the_oldest_failure_goes_first(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.02)
    await stage.fail("bad")
    for name in ("bad", "worse"):
        assert (await stage.admit(name)).wait_s
    await stage.passes(0.11)
    assert (await stage.admit("bad")).wait_s
    await stage.probe("worse")


async def test_the_probe_is_kept_for_a_short_time_only(stage: Stage) -> None:
    await stage.open()
    assert (await stage.admit("gone")).wait_s
    await stage.passes(0.37)
    await stage.probe("bad")


async def test_one_that_has_not_failed_does_not_wait_for_the_probe_of_one_that_has(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.11)
    await stage.probe("bad")
    await stage.probe("good")
    assert (await stage.admit("other")).wait_s


async def test_failed_probes_of_one_that_failed_delay_only_those_that_failed(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.11)
    for longest_s in (0.2, 0.25):
        await stage.probe("bad")
        assert await stage.fail("bad")
        wait_s = (await stage.admit("bad")).wait_s
        assert longest_s - 0.05 < wait_s <= longest_s + 0.001
        await stage.passes(wait_s + 0.01)
    await stage.probe("bad")
    await stage.fail("bad")
    await stage.probe("good")


async def test_a_failed_probe_of_another_delays_all(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.11)
    await stage.probe("third")
    assert await stage.fail("third")
    for name in ("new", "bad"):
        assert 0.15 < (await stage.admit(name)).wait_s <= 0.201


async def test_a_probe_that_never_reports_is_replaced(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.11)
    await stage.probe("a")
    await stage.passes(0.26)
    await stage.probe("b")


async def test_a_probe_that_succeeds_closes_it(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.11)
    await stage.probe("a")
    await stage.store.recover("m", "a")
    assert await stage.admit() == Health()


async def test_an_open_breaker_without_probes_closes_after_a_while(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.1 + 0.76)
    assert (await stage.admit("bad")).breaker == "closed"


async def test_a_call_without_a_key_is_no_probe(stage: Stage) -> None:
    await stage.open()
    await stage.store.cool("p", None, "auth")
    await stage.passes(0.11)
    health = await stage.admit("a", "p")
    assert (health.wait_s, health.breaker) == (0, "open")
    assert (await stage.admit("a", "p", "q")).breaker == "probe"
    assert (await stage.admit("b", "p", "q")).wait_s > 0


async def test_failures_far_apart_are_not_consecutive(stage: Stage) -> None:
    await stage.fail("a")
    await stage.passes(0.76)
    assert await stage.fail("b") is False


async def test_a_stopped_probe_is_released(stage: Stage) -> None:
    await stage.open()
    await stage.passes(0.11)
    await stage.probe("a")
    await stage.store.release("m", "b")
    assert (await stage.admit("b")).wait_s > 0
    await stage.store.release("m", "a")
    await stage.probe("b")


async def test_only_a_call_through_a_breaker_that_is_open_is_a_probe(stage: Stage) -> None:
    await stage.store.release("m", "a")
    assert (await stage.admit("a")).breaker == "closed"
    await stage.open()
    assert (await stage.admit("a")).breaker == "open"


async def test_a_key_rests_for_one_model_or_for_all(stage: Stage) -> None:
    await stage.store.cool("p", "m", "rate_limit", 5.0)
    await stage.store.cool("q", None, "auth")
    here, elsewhere = (
        await stage.store.admit("m", ["p", "q", "r"], "c"),
        await stage.store.admit("n", ["p", "q", "r"], "c"),
    )
    assert {name: rest.reason for name, rest in here.cooling.items()} == {"p": "rate_limit", "q": "auth"}
    assert set(elsewhere.cooling) == {"q"}
    assert here.cooling["p"].until_s == pytest.approx(stage.now_s() + 5.0, abs=0.5)


async def test_rests_double_up_to_a_cap_and_reset_after_a_while(stage: Stage) -> None:
    rests: list[float] = []
    for _ in range(4):
        rests.append(await stage.store.cool("p", "m", "rate_limit"))
        await stage.passes(rests[-1] + 0.01)
    assert rests == pytest.approx([0.1, 0.2, 0.35, 0.35], abs=0.01)
    await stage.passes(0.71)
    assert await stage.store.cool("p", "m", "rate_limit") == pytest.approx(0.1, abs=0.01)


async def test_concurrent_failures_count_once(stage: Stage) -> None:
    rests = [await stage.store.cool("p", "m", "rate_limit") for _ in range(5)]
    assert all(rest_s <= 0.101 for rest_s in rests)


async def test_a_rest_that_the_provider_requests_overrides_and_may_extend_ours(stage: Stage) -> None:
    assert await stage.store.cool("p", "m", "rate_limit", 2.0) == pytest.approx(2.0, abs=0.01)
    assert await stage.store.cool("p", "m", "rate_limit", 5.0) == pytest.approx(5.0, abs=0.01)
    assert await stage.store.cool("p", "m", "rate_limit", 1.0) == pytest.approx(5.0, abs=0.1)


class CountingHealth(MemoryHealth):
    """Counts the requests that it gets."""

    asked = 0
    recovered = 0

    async def recover(self, model: str, conversation: str) -> None:
        self.recovered += 1
        await super().recover(model, conversation)

    async def admit(self, *args: object) -> object:  # type: ignore[override]  # counts, and passes on what it gets
        self.asked += 1
        return await super().admit(*args)  # type: ignore[arg-type]  # as above


async def test_a_healthy_model_is_checked_rarely(clock: FakeClock) -> None:
    shared = CountingHealth(POLICY, clock)
    health = SharedHealth(cast("HealthStore", shared), POLICY, clock)
    for at in range(10):
        await health.admit("m", ["p"], f"{at}")
    assert shared.asked == 1
    clock.now_s += 61
    await health.admit("m", ["p"], "c")
    assert shared.asked == 2
    await health.fail("m", Failure("c"))
    assert (await health.admit("m", ["p"], "c")).failures == 1
    assert shared.asked == 3


async def test_an_answer_is_reported_only_where_failures_are_known(clock: FakeClock) -> None:
    shared = CountingHealth(POLICY, clock)
    health = SharedHealth(cast("HealthStore", shared), POLICY, clock)
    resilience = Resilience(POLICY, health, RateLimiter({}))

    async def answer(*, failed_before: bool = False) -> int:
        resilience.answered(Call("m", "c", is_probe=False, failed_before=failed_before))
        await resilience.close()
        return shared.recovered

    await health.admit("m", ["p"], "c")
    assert await answer() == 0
    await health.fail("m", Failure("c"))
    assert [await answer() for _ in range(3)] == [1, 1, 1]
    assert await answer(failed_before=True) == 2
    # A failure of another worker is known once this one asks.
    await shared.fail("m", Failure("other"))
    assert await answer() == 2
    await health.admit("m", ["p"], "c")
    assert [await answer() for _ in range(3)] == [3, 3, 3]
    assert (await health.admit("m", ["p"], "c")).failures == 0


async def test_the_last_answer_of_a_process_is_known_with_its_next_failure(clock: FakeClock) -> None:
    shared = MemoryHealth(POLICY, clock)
    health = SharedHealth(shared, POLICY, clock)
    resilience = Resilience(POLICY, health, RateLimiter({}))
    await health.admit("m", ["p"], "good")
    await shared.fail("m", Failure("bad"))
    clock.now_s += 0.1
    resilience.answered(Call("m", "good", is_probe=False, failed_before=False))
    clock.now_s += 0.1
    assert not await health.fail("m", Failure("worse"))
