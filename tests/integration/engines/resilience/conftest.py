"""Engines before a model server that can misbehave, with the pauses of a hasty operator."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base import keys
from nova_workers.engines.anthropic import AnthropicEngine, Profile, Windows
from nova_workers.engines.resilience import (
    HealthKeys,
    Policy,
    RateLimit,
    RateLimiter,
    RedisHealth,
    Resilience,
    SharedHealth,
)
from tests.integration.engines.resilience.stage import CountingMetrics, FakeClock, MakeEngine
from tests.support.servers.model_server import ModelServer, model_server

HASTY = Policy(
    max_retries=5,
    backoff_s=0.002,
    backoff_cap_s=0.01,
    breaker_open_s=0.1,
    breaker_open_cap_s=0.3,
    rate_cooldown_s=0.2,
    auth_cooldown_s=30.0,
    patience_s=60.0,
    health_cache_s=0.0,
)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """The model server."""
    async with model_server() as server:
        yield server


@pytest.fixture
def counts() -> CountingMetrics:
    """The counts of all engines of the test."""
    return CountingMetrics()


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still until it is moved."""
    return FakeClock()


@pytest.fixture
def health_keys() -> HealthKeys:
    """The prefix of the state's keys."""
    return HealthKeys(
        provider="anthropic",
        index=keys.model_rests(),
        breaker=lambda model: keys.model_breaker("anthropic", model),
        failed=lambda model: keys.model_failures("anthropic", model),
        cooldown=lambda profile, model: keys.profile_cooldown("anthropic", profile, "00", model),
    )


@pytest.fixture
async def make(server: ModelServer, counts: CountingMetrics, health_keys: HealthKeys) -> AsyncIterator[MakeEngine]:
    """Build engines, each like that of another worker: an engine that shares Redis has its own client."""
    engines: list[AnthropicEngine] = []

    def build(
        *names: str,
        redis: Redis | None = None,
        policy: Policy = HASTY,
        limits: dict[str, RateLimit] | None = None,
        window_s: int = 1,
        **given: Any,
    ) -> AnthropicEngine:
        clock: Callable[[], float] = given.pop("clock", Resilience.of_one_process(policy).clock)
        shared = None if redis is None else RedisHealth(redis, health_keys, policy, clock)
        limiter: RateLimiter = given.pop("limiter", None) or RateLimiter(
            limits or {}, window_s=window_s, redis=redis, key_prefix=keys.model_rate_limits("anthropic")
        )
        engine = AnthropicEngine(
            profiles=[Profile(name, f"key-{name}") for name in names or ("default",)],
            base_url=given.pop("base_url", server.url),
            windows=Windows(given.pop("context_windows", {}), aliases=given.get("aliases")),
            resilience=Resilience(policy, SharedHealth(shared, policy, clock), limiter, counts, clock),
            **given,
        )
        engines.append(engine)
        return engine

    yield build
    for engine in engines:
        await engine.close()
