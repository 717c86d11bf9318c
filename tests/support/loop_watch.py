"""What the test's process does meanwhile: whether its event loop stays responsive, and how much memory it holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

_EVERY_S = 0.01
_MAX_HELD_S = 5.0
"""Input without bounds held the loop for minutes, or until memory ended."""


@dataclass
class LoopWatch:
    """What was seen.

    Attributes:
        held_s: How much CPU the loop used between two ticks, at most. Not time: a busy machine delays every loop.
        grown_kb: How much more memory the process held than at the beginning, at most.
    """

    held_s: float = 0.0
    grown_kb: int = 0


@asynccontextmanager
async def watched_loop(*, max_grown_kb: int | None = None) -> AsyncGenerator[LoopWatch]:
    """Watch the loop during the block, and fail if it was held or the process grew by more than a number of KiB.

    What grew is known when the block has ended.
    """
    watch, ended = LoopWatch(), asyncio.Event()
    _forget_peak()
    before_kb = _memory_kb("VmRSS")
    watcher = asyncio.create_task(_watch(watch, ended))
    try:
        yield watch
    finally:
        # What held the loop last is seen at the tick after it.
        ended.set()
        await watcher
        # The kernel's own count: a sample taken on the loop misses what is freed before the loop runs again.
        watch.grown_kb = max(0, _memory_kb("VmHWM") - before_kb)
    assert watch.held_s < _MAX_HELD_S
    assert max_grown_kb is None or watch.grown_kb < max_grown_kb


async def _watch(watch: LoopWatch, ended: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    while not ended.is_set():
        before_s = time.thread_time()
        reached = asyncio.Event()
        loop.call_later(_EVERY_S, reached.set)
        await reached.wait()
        watch.held_s = max(watch.held_s, time.thread_time() - before_s)


def _forget_peak() -> None:
    """Make the most that the process ever held, `VmHWM`, what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def _memory_kb(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
