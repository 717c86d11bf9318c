"""Warns a command that waits for a run if Redis does not answer, or no worker is alive."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

from nova_workers.base.errors import NovaError
from nova_workers.base.stopping import stop_tasks
from nova_workers.cli.command import Session
from nova_workers.contracts.http.wire import NO_WORKER_ALIVE, REDIS_UNAVAILABLE

_FIRST_LOOK_S = 2.0
_LOOK_EVERY_S = 5.0


@asynccontextmanager
async def missing_worker_noted(session: Session, run_id: str, note: Callable[[str, str], None]) -> AsyncGenerator[None]:
    """Poll a run inside the block, and print one note if Redis or each worker for it is away.

    Args:
        session: A session of the run's tenant.
        note: Takes the line and its style.
    """
    task = asyncio.create_task(_look(session, run_id, note))
    try:
        yield
    finally:
        await stop_tasks([task])


async def _look(session: Session, run_id: str, note: Callable[[str, str], None]) -> None:
    await asyncio.sleep(_FIRST_LOOK_S)
    while True:
        # The wait itself reports an API that fails.
        with suppress(NovaError):
            run = await session.client.runs.get(run_id)
            if run.waiting_for and run.waiting_for.startswith((NO_WORKER_ALIVE, REDIS_UNAVAILABLE)):
                note(f"⏸ {run.id} is queued; {run.waiting_for}", "yellow")
                return
        await asyncio.sleep(_LOOK_EVERY_S)
