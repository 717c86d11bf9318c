"""What the test's process does meanwhile: whether its event loop stays responsive, and how much memory it holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LoopWatch", "watched_loop"]

_EVERY_S = 0.01
_MAX_LATE_S = 5.0
"""A busy machine delays a loop by a second; input without bounds held it for minutes, or until memory ended."""


@dataclass
class LoopWatch:
    """What was seen.

    Attributes:
        late_s: How late the loop ran what was due, at most.
        grown_kb: How much more memory the process held than at the beginning, at most.
    """

    late_s: float = 0.0
    grown_kb: int = 0


@asynccontextmanager
async def watched_loop(*, max_grown_kb: int | None = None) -> AsyncGenerator[LoopWatch]:
    """Watch the loop during the block, and fail if it was held or the process grew by more than a number of KiB."""
    watch = LoopWatch()
    watcher = asyncio.create_task(_watch(watch, _resident_kb()))
    try:
        yield watch
    finally:
        watcher.cancel()
    assert watch.late_s < _MAX_LATE_S
    assert max_grown_kb is None or watch.grown_kb < max_grown_kb


async def _watch(watch: LoopWatch, before_kb: int) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _EVERY_S
        reached = asyncio.Event()
        loop.call_at(due_s, reached.set)
        await reached.wait()
        watch.late_s = max(watch.late_s, loop.time() - due_s)
        watch.grown_kb = max(watch.grown_kb, _resident_kb() - before_kb)


def _resident_kb() -> int:
    """Return the memory that this process holds now: `ru_maxrss` is the most that it ever held."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024
