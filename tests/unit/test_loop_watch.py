"""The watch over a test's own loop and memory sees what happens between its ticks."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.loop_watch import watched_loop


async def test_a_loop_that_is_held_until_the_end_of_the_block_is_seen() -> None:
    async with watched_loop() as watch:
        await asyncio.sleep(0)
        until_s = time.thread_time() + 0.2
        while time.thread_time() < until_s:
            pass
    assert watch.held_s > 0.1


async def test_memory_that_is_freed_before_the_loop_runs_again_is_seen() -> None:
    with pytest.raises(AssertionError):
        async with watched_loop(max_grown_kb=50_000):
            assert b"x" * 100_000_000
    async with watched_loop(max_grown_kb=50_000) as watch:
        await asyncio.sleep(0)
    assert watch.grown_kb < 50_000
