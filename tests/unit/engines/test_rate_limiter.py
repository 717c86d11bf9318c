"""How many of a window's tokens the limiter takes, and how many it returns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.resilience import RateLimit, RateLimiter
from tests.support.waiting import stays

MODEL = "m"


Passes = Callable[[float], None]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """Let time pass for the limiter, the library `limits` and the loop."""

    def move(seconds: float) -> None:
        wall, monotonic = time.time, time.monotonic
        monkeypatch.setattr(time, "time", lambda: wall() + seconds)
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + seconds)

    return move


def _limiter(limit: RateLimit) -> RateLimiter:
    return RateLimiter({MODEL: limit}, window_s=600)


async def _must_wait(limiter: RateLimiter, tokens: int) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await limiter.take(["a"], MODEL, tokens)


async def _admitted_when_requests_are(limiter: RateLimiter, passes: Passes) -> None:
    """Check that a call waits for the window of requests, which is half over, and not for tokens drawn just now."""
    waiting = asyncio.create_task(limiter.take(["a"], MODEL, 900))
    await stays(lambda: not waiting.done(), for_s=0.1)
    passes(310)
    async with asyncio.timeout(60):
        await waiting


async def test_the_rest_of_a_unit_is_used_by_the_next_calls() -> None:
    limiter = _limiter(RateLimit(tokens=10_000))
    async with asyncio.timeout(60):
        for _ in range(2_000):
            await limiter.take(["a"], MODEL, 1)


async def test_estimated_tokens_that_were_not_used_are_returned_once() -> None:
    limiter = _limiter(RateLimit(tokens=1_000))
    grant = await limiter.take(["a"], MODEL, 1_000)
    grant.settle(TokenUsage(400, 100))
    async with asyncio.timeout(60):
        await limiter.take(["a"], MODEL, 500)
    await _must_wait(limiter, 500)


async def test_usage_beyond_the_estimate_is_taken_by_the_next_call() -> None:
    limiter = _limiter(RateLimit(tokens=1_000))
    grant = await limiter.take(["a"], MODEL, 100)
    grant.settle(TokenUsage(800, 100))
    await _must_wait(limiter, 200)


async def test_a_debt_expires_with_its_window(passes: Passes) -> None:
    limiter = _limiter(RateLimit(tokens=1_000))
    grant = await limiter.take(["a"], MODEL, 10)
    grant.settle(TokenUsage(5_000))
    passes(601)
    async with asyncio.timeout(60):
        await limiter.take(["a"], MODEL, 10)
        await limiter.take(["a"], MODEL, 10)


async def test_tokens_taken_for_a_key_without_requests_left_serve_its_next_call(passes: Passes) -> None:
    limiter = _limiter(RateLimit(requests=1, tokens=1_000))
    await limiter.take(["a"], MODEL, 100)
    passes(300)
    assert (await limiter.take(["a", "b"], MODEL, 900)).profile == "b"
    await _admitted_when_requests_are(limiter, passes)


async def test_tokens_taken_for_a_call_stopped_in_the_queue_serve_the_next(passes: Passes) -> None:
    limiter = _limiter(RateLimit(requests=1, tokens=1_000))
    await limiter.take(["a"], MODEL, 100)
    passes(300)
    await _must_wait(limiter, 900)
    await _admitted_when_requests_are(limiter, passes)
