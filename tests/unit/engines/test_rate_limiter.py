"""How many of a window's tokens the limiter takes, and how many it returns."""

from __future__ import annotations

import asyncio
import time

import pytest

from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.resilience import RateLimit, RateLimiter

MODEL = "m"


def _limiter(limit: RateLimit, window_s: int = 600) -> RateLimiter:
    return RateLimiter({MODEL: limit}, window_s=window_s)


async def _must_wait(limiter: RateLimiter, tokens: int) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await limiter.take(["a"], MODEL, tokens)


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


async def test_a_debt_expires_with_its_window() -> None:
    limiter = _limiter(RateLimit(tokens=1_000), window_s=1)
    grant = await limiter.take(["a"], MODEL, 10)
    grant.settle(TokenUsage(5_000))
    await asyncio.sleep(1.05)
    async with asyncio.timeout(0.9):
        await limiter.take(["a"], MODEL, 10)
        await limiter.take(["a"], MODEL, 10)


async def test_tokens_taken_for_a_key_without_requests_left_serve_its_next_call() -> None:
    limiter = _limiter(RateLimit(requests=1, tokens=1_000), window_s=4)
    began_s = time.monotonic()
    await limiter.take(["a"], MODEL, 100)
    await asyncio.sleep(2.0)
    assert (await limiter.take(["a", "b"], MODEL, 900)).profile == "b"
    await limiter.take(["a"], MODEL, 900)
    # At 4 s the window of requests has room; tokens drawn at 2 s would be in theirs until 6 s.
    assert time.monotonic() - began_s < 5.6


async def test_tokens_taken_for_a_call_stopped_in_the_queue_serve_the_next() -> None:
    limiter = _limiter(RateLimit(requests=1, tokens=1_000), window_s=4)
    began_s = time.monotonic()
    await limiter.take(["a"], MODEL, 100)
    await asyncio.sleep(2.0)
    await _must_wait(limiter, 900)
    await limiter.take(["a"], MODEL, 900)
    assert time.monotonic() - began_s < 5.6
