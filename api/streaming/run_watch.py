"""The fallback of live streams: one query for all runs that this process follows.

A follower gets the end of its run from Redis. If it never arrives (Redis is unavailable, or was wiped), the ledger has
it. This queries the ledger every few seconds, for all followers at once, and wakes those whose run has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Literal

import structlog

from nova_workers.errors import Unavailable
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.runs.reads import find_ended

__all__ = ["RunWatch", "Wake"]

_log = structlog.get_logger(__name__)

Wake = Literal["over", "closing"]
"""Why a follower is woken: its run ended, or the process stops."""


class RunWatch:
    """Watches runs for their end, or, with another way to find those that ended, other work."""

    def __init__(
        self,
        database: Database,
        *,
        every_s: float,
        find: Callable[[Connection, Sequence[str]], Awaitable[set[str]]] = find_ended,
    ) -> None:
        self._database = database
        self._find = find
        self._every_s = every_s
        self._waiting: dict[str, set[asyncio.Future[Wake]]] = {}
        self._over: set[str] = set()
        self._closing = False

    @contextmanager
    def watch(self, run_id: str) -> Generator[asyncio.Future[Wake]]:
        """Yield a future that is set when the run ended a while ago, or the process stops."""
        woken: asyncio.Future[Wake] = asyncio.get_running_loop().create_future()
        if self._closing:
            woken.set_result("closing")
        waiting = self._waiting.setdefault(run_id, set())
        waiting.add(woken)
        try:
            yield woken
        finally:
            waiting.discard(woken)
            if not waiting:
                self._waiting.pop(run_id, None)
            woken.cancel()

    async def run(self) -> None:
        """Check until canceled."""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self._look()
            except Unavailable as error:
                _log.warning("run_watch.database_unavailable", following=len(self._waiting), error=error.message)
            except Exception:
                _log.exception("run_watch.failed")

    def close(self) -> None:
        """Wake every follower, now and from now on: the process stops."""
        self._closing = True
        for run_id in tuple(self._waiting):
            self._wake(run_id, "closing")

    async def _look(self) -> None:
        if not self._waiting:
            self._over.clear()
            return
        async with self._database.connection() as connection:
            over = await self._find(connection, list(self._waiting))
        # Seen twice: a follower has a whole interval to get the end from the stream, after all other events.
        for run_id in over & self._over:
            self._wake(run_id, "over")
        self._over = over

    def _wake(self, run_id: str, why: Wake) -> None:
        for woken in self._waiting.get(run_id, ()):
            if not woken.done():
                woken.set_result(why)
