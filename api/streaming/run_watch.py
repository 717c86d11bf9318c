"""The fallback of live streams: one query for all runs that this process follows.

A follower gets the end of its run, and what its run waits for, from Redis. If it never arrives (Redis is unavailable,
was wiped, or a worker died before it sent this), the ledger has it. This queries the ledger every few seconds, for all
followers at once, and wakes those whose run has ended or waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import structlog

from nova_workers.base.errors import Unavailable
from nova_workers.domain.runs.sql.reads import SuspendedRun, find_ended, find_waiting
from nova_workers.ledger.database import Connection, Database

_log = structlog.get_logger(__name__)

Wake = Literal["over", "closing"]
"""Why a follower is woken: its run ended, or the process stops."""


@dataclass(frozen=True, slots=True, eq=False)
class _Watcher:
    woken: asyncio.Future[Wake]
    on_suspended: Callable[[SuspendedRun], None] | None


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
        self._watchers: dict[str, set[_Watcher]] = {}
        """The watchers by run."""
        self._over: set[str] = set()
        self._suspended: dict[str, SuspendedRun] = {}
        self._closing = False

    @contextmanager
    def watch(
        self, run_id: str, on_suspended: Callable[[SuspendedRun], None] | None = None
    ) -> Generator[asyncio.Future[Wake]]:
        """Yield a future that is set when the run ended a while ago, or the process stops.

        `on_suspended` is called every few seconds while the run waits, except when it has just begun to; and while it
        is held before its first attempt.
        """
        woken: asyncio.Future[Wake] = asyncio.get_running_loop().create_future()
        if self._closing:
            woken.set_result("closing")
        watcher = _Watcher(woken, on_suspended)
        watchers = self._watchers.setdefault(run_id, set())
        watchers.add(watcher)
        try:
            yield woken
        finally:
            watchers.discard(watcher)
            if not watchers:
                self._watchers.pop(run_id, None)
            woken.cancel()

    async def run(self) -> None:
        """Check until canceled."""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self._look()
            except Unavailable as error:
                _log.warning(
                    "run_watch.database_unavailable",
                    outage="postgres",
                    following=len(self._watchers),
                    error=str(error),
                )
            except Exception:
                _log.exception("run_watch.failed")

    def close(self) -> None:
        """Wake every follower, now and from now on: the process stops."""
        self._closing = True
        for run_id in tuple(self._watchers):
            self._wake(run_id, "closing")

    async def _look(self) -> None:
        watched = list(self._watchers)
        may_wait = [run_id for run_id in watched if any(each.on_suspended for each in self._watchers[run_id])]
        over: set[str] = set()
        suspended: dict[str, SuspendedRun] = {}
        if watched:
            async with self._database.connection() as connection:
                over = await self._find(connection, watched)
                if may_wait:
                    suspended = await find_waiting(connection, may_wait)
        # Seen twice: a follower has a whole interval to get this from the stream, after all other events.
        for run_id in over & self._over:
            self._wake(run_id, "over")
        # A run that is held before its first attempt has no stream from which a follower may get this.
        early = {item for item in suspended.items() if item[1].attempt == 0}
        for run_id, found in (suspended.items() & self._suspended.items()) | early:
            for watcher in tuple(self._watchers.get(run_id, ())):
                if watcher.on_suspended is not None:
                    watcher.on_suspended(found)
        self._over, self._suspended = over, suspended

    def _wake(self, run_id: str, why: Wake) -> None:
        for watcher in self._watchers.get(run_id, ()):
            if not watcher.woken.done():
                watcher.woken.set_result(why)
