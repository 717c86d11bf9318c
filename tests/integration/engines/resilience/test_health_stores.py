"""Breakers and cool-downs: the store in Redis and its twin in memory do the same."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import cast

import pytest
from redis.asyncio import Redis

from nova_workers.engines.resilience import HealthKeys, Policy, RateLimiter, RedisHealth, Resilience, SharedHealth
from nova_workers.engines.resilience.health import HealthStore
from nova_workers.engines.resilience.memory_health import MemoryHealth
from nova_workers.engines.resilience.shared import Probe
from tests.integration.engines.resilience.stage import FakeClock

POLICY = Policy(
    breaker_open_s=0.2,
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


@pytest.fixture(params=["memory", "redis"])
async def stage(request: pytest.FixtureRequest, redis: Redis, health_keys: HealthKeys) -> AsyncIterator[Stage]:
    """Redis has its own clock, which a test cannot move, so with Redis the test waits."""
    if request.param == "memory":
        clock = FakeClock()

        async def move(seconds: float) -> None:
            clock.now_s += seconds

        yield Stage(MemoryHealth(POLICY, clock), move, clock)
        return
    now_s = asyncio.get_running_loop().time
    yield Stage(RedisHealth(redis, health_keys, POLICY, now_s), asyncio.sleep, now_s)


async def _open(store: HealthStore) -> None:
    assert [await store.fail("m") for _ in range(3)] == [False, False, True]


async def test_it_opens_at_the_third_failure(stage: Stage) -> None:
    assert (await stage.store.admit("m", ["p"])).wait_s == 0
    await _open(stage.store)
    health = await stage.store.admit("m", ["p"])
    assert 0.1 < health.wait_s <= 0.201
    assert health.failures == 3


async def test_failures_while_it_is_open_do_not_extend_the_time(stage: Stage) -> None:
    await _open(stage.store)
    await stage.passes(0.15)
    assert await stage.store.fail("m") is True
    assert (await stage.store.admit("m", ["p"])).wait_s <= 0.06


async def test_after_its_time_one_call_is_admitted(stage: Stage) -> None:
    await _open(stage.store)
    await stage.passes(0.21)
    waits = [(await stage.store.admit("m", ["p"])).wait_s for _ in range(3)]
    assert waits[0] == 0
    assert all(0 < wait_s <= 0.5 for wait_s in waits[1:])


async def test_a_probe_that_never_reports_is_replaced(stage: Stage) -> None:
    await _open(stage.store)
    await stage.passes(0.21)
    assert (await stage.store.admit("m", ["p"])).wait_s == 0
    await stage.passes(0.21)
    assert (await stage.store.admit("m", ["p"])).wait_s == 0


async def test_a_failed_probe_opens_it_for_its_whole_time(stage: Stage) -> None:
    await _open(stage.store)
    await stage.passes(0.21)
    await stage.store.admit("m", ["p"])
    assert await stage.store.fail("m") is True
    assert 0.1 < (await stage.store.admit("m", ["p"])).wait_s <= 0.201


async def test_a_probe_that_succeeds_closes_it(stage: Stage) -> None:
    await _open(stage.store)
    await stage.passes(0.21)
    await stage.store.admit("m", ["p"])
    await stage.store.recover("m")
    assert await stage.store.admit("m", ["p"]) == replace(await stage.store.admit("m", ["p"]), wait_s=0, failures=0)


async def test_a_call_without_a_key_is_no_probe(stage: Stage) -> None:
    await _open(stage.store)
    await stage.store.cool("p", None, "auth", None)
    await stage.passes(0.21)
    await stage.store.admit("m", ["p"])
    assert (await stage.store.admit("m", ["p", "q"])).wait_s == 0
    assert (await stage.store.admit("m", ["p", "q"])).wait_s > 0


async def test_failures_far_apart_are_not_consecutive(stage: Stage) -> None:
    await stage.store.fail("m")
    await stage.store.fail("m")
    await stage.passes(0.7)
    assert await stage.store.fail("m") is False


async def test_a_key_rests_for_one_model_or_for_all(stage: Stage) -> None:
    await stage.store.cool("p", "m", "rate_limit", 5.0)
    await stage.store.cool("q", None, "auth", None)
    here, elsewhere = await stage.store.admit("m", ["p", "q", "r"]), await stage.store.admit("n", ["p", "q", "r"])
    assert {name: rest.reason for name, rest in here.cooling.items()} == {"p": "rate_limit", "q": "auth"}
    assert set(elsewhere.cooling) == {"q"}
    assert here.cooling["p"].until_s == pytest.approx(stage.now_s() + 5.0, abs=0.5)


async def test_rests_double_up_to_a_cap_and_reset_after_a_while(stage: Stage) -> None:
    rests: list[float] = []
    for _ in range(4):
        rests.append(await stage.store.cool("p", "m", "rate_limit", None))
        await stage.passes(rests[-1] + 0.01)
    assert rests == pytest.approx([0.1, 0.2, 0.35, 0.35], abs=0.01)
    await stage.passes(0.71)
    assert await stage.store.cool("p", "m", "rate_limit", None) == pytest.approx(0.1, abs=0.01)


async def test_concurrent_failures_count_once(stage: Stage) -> None:
    rests = [await stage.store.cool("p", "m", "rate_limit", None) for _ in range(5)]
    assert all(rest_s <= 0.101 for rest_s in rests)


async def test_a_rest_that_the_provider_requests_overrides_and_may_extend_ours(stage: Stage) -> None:
    assert await stage.store.cool("p", "m", "rate_limit", 2.0) == pytest.approx(2.0, abs=0.01)
    assert await stage.store.cool("p", "m", "rate_limit", 5.0) == pytest.approx(5.0, abs=0.01)
    assert await stage.store.cool("p", "m", "rate_limit", 1.0) == pytest.approx(5.0, abs=0.1)


class CountingHealth(MemoryHealth):
    """Counts what it is asked and told."""

    asked = 0
    recovered = 0

    async def recover(self, model: str) -> None:
        self.recovered += 1
        await super().recover(model)

    async def admit(self, *args: object) -> object:  # type: ignore[override]  # counts, and passes on what it gets
        self.asked += 1
        return await super().admit(*args)  # type: ignore[arg-type]  # as above


async def test_a_healthy_model_is_checked_rarely(clock: FakeClock) -> None:
    shared = CountingHealth(POLICY, clock)
    health = SharedHealth(cast("HealthStore", shared), POLICY, clock)
    for _ in range(10):
        await health.admit("m", ["p"])
    assert shared.asked == 1
    clock.now_s += 61
    await health.admit("m", ["p"])
    assert shared.asked == 2
    await health.fail("m")
    assert (await health.admit("m", ["p"])).failures == 1
    assert shared.asked == 3


async def test_an_answer_is_reported_only_where_failures_are_known(clock: FakeClock) -> None:
    shared = CountingHealth(POLICY, clock)
    health = SharedHealth(cast("HealthStore", shared), POLICY, clock)
    resilience = Resilience(POLICY, health, RateLimiter({}))

    async def answer() -> int:
        resilience.answered("m", Probe(reported=False))
        await resilience.close()
        return shared.recovered

    await health.admit("m", ["p"])
    assert await answer() == 0
    await health.fail("m")
    assert [await answer() for _ in range(3)] == [1, 1, 1]
    # A failure of another worker is known once this one asks.
    await shared.fail("m")
    assert await answer() == 1
    await health.admit("m", ["p"])
    assert [await answer() for _ in range(3)] == [2, 2, 2]
    assert (await health.admit("m", ["p"])).failures == 0


async def test_a_stopped_probe_is_released(stage: Stage) -> None:
    await _open(stage.store)
    await stage.passes(0.21)
    assert (await stage.store.admit("m", ["p"])).probe
    assert (await stage.store.admit("m", ["p"])).wait_s > 0
    await stage.store.release("m")
    health = await stage.store.admit("m", ["p"])
    assert (health.wait_s, health.probe) == (0, True)


async def test_only_a_call_through_a_half_open_breaker_is_a_probe(stage: Stage) -> None:
    await stage.store.release("m")
    assert (await stage.store.admit("m", ["p"])) == await stage.store.admit("m", ["p"])
    assert not (await stage.store.admit("m", ["p"])).probe
    await _open(stage.store)
    assert not (await stage.store.admit("m", ["p"])).probe
