"""A process with a master key, as a worker is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.waiting import until


@asynccontextmanager
async def key_holder() -> AsyncGenerator[int]:
    """Run a process of this user whose environment says ``hush``, and yield its pid.

    The kernel shows the environment that a process was started with: what a test sets in its own later, no reader of
    /proc could find.
    """
    process = await asyncio.create_subprocess_exec("sleep", "120", env={"NOVA_SECRETS__KEYS": "hush"})
    try:
        await until(lambda: "hush" in Path(f"/proc/{process.pid}/environ").read_text())
        yield process.pid
    finally:
        process.kill()
        await process.wait()
