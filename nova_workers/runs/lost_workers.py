"""Workers that ended without a word: found by their sessions with Postgres, seconds after their end."""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from nova_workers.errors import Unavailable
from nova_workers.ledger.database import Database
from nova_workers.ledger.runs.workers import forget_worker, hold_lock, look_for_lost_workers
from nova_workers.runs.recover import Reconciler

__all__ = ["LostWorkers"]

_log = structlog.get_logger(__name__)


_LOOKS = 3
"""Looks in a row that find a worker without a session before it counts as lost."""


class LostWorkers:
    """Holds this worker's lock in a session of its own, and recovers the runs of workers whose session has ended.

    The connection of a worker may break while the worker lives: it takes its lock again at its next look, which is
    before others have looked three times. If it cannot, its runs go on elsewhere, and their fences refuse what it still
    writes. When this worker's own session broke, as in a restart of Postgres, it counts looks anew: the sessions of all
    others broke too.
    """

    def __init__(self, database: Database, reconciler: Reconciler, *, worker_id: str, every_s: float) -> None:
        """Take a database of one connection that nothing else uses, and how often to look."""
        self._database = database
        self._reconciler = reconciler
        self._worker_id = worker_id
        self._every_s = every_s
        self._missing: Counter[str] = Counter()
        """Workers without a session, and how many looks in a row found them so."""

    async def run(self) -> None:
        """Look until canceled. Ends at once where a pooler stands before Postgres: then leases are the way."""
        is_away, knows_pooler = False, False
        while True:
            try:
                if not knows_pooler:
                    if await self._database.is_shared():
                        _log.info("lost_workers.pooler", found_by="their leases")
                        return
                    knows_pooler = True
                await self.look()
                is_away = False
            except Unavailable as error:
                if not is_away:
                    _log.warning("lost_workers.cannot_look", error=error.message)
                is_away = True
                self._missing.clear()
            await asyncio.sleep(self._every_s)

    async def look(self) -> int:
        """Look once, and return how many runs were recovered.

        Raises:
            Unavailable: The database does not answer.
        """
        async with self._database.connection() as connection:
            look = await look_for_lost_workers(connection, self._worker_id)
            if not look.held:
                self._missing.clear()
                # False while the server has not noticed yet that an earlier session of this worker broke.
                await hold_lock(connection, self._worker_id)
                return 0
        self._missing = Counter({worker_id: self._missing[worker_id] + 1 for worker_id in look.lost})
        lost = [worker_id for worker_id, looks in self._missing.items() if looks >= _LOOKS]
        return await self._reconciler.recover_from(lost) if lost else 0

    async def close(self) -> None:
        """Give the lock back, after this worker's runs have ended or were requeued. Best effort."""
        try:
            async with self._database.connection() as connection:
                await forget_worker(connection, self._worker_id)
        except Unavailable as error:
            _log.warning("lost_workers.not_withdrawn", error=error.message)
        await self._database.close()
