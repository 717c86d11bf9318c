"""Workers that ended without a word: found by their sessions with Postgres, seconds after their end."""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from nova_workers.base.errors import Unavailable
from nova_workers.domain.runs.rules.recover import Reconciler
from nova_workers.domain.runs.sql.workers import forget_worker, hold_lock, look_for_lost_workers
from nova_workers.domain.threads.rules.lease import LeaseKeeper
from nova_workers.ledger.database import Database, PostgresDatabase

_log = structlog.get_logger(__name__)


_LOOKS = 3
"""Looks in a row that find a worker without a session before it counts as lost."""
_WITHDRAW_S = 2.0
"""The time for Postgres to delete this worker's row."""


class LostWorkers:
    """Holds this worker's lock in a session of its own, and recovers the runs of workers whose session has ended.

    The session of a worker may break while the worker lives. At its next look it deletes its row, over the pool that
    renews its leases, so that its leases decide until it has its lock again. If others were faster, or it does not
    reach Postgres at all, they requeue its runs: it renews its leases at once to learn that, and the fence refuses what
    it still writes. When this worker's own session broke, as in a restart of Postgres, it counts looks anew: the
    sessions of all others broke too.
    """

    def __init__(
        self,
        session: PostgresDatabase,
        database: Database,
        keeper: LeaseKeeper,
        reconciler: Reconciler,
        *,
        worker_id: str,
        every_s: float,
    ) -> None:
        """Keep what is handed in; nothing is started.

        Args:
            session: A database of one connection that nothing else uses.
            database: The database over which `keeper` renews leases.
            keeper: Of this worker's leases.
            reconciler: Recovers runs.
            worker_id: This worker's id.
            every_s: Pause between two looks.
        """
        self._session = session
        self._database = database
        self._keeper = keeper
        self._reconciler = reconciler
        self._worker_id = worker_id
        self._every_s = every_s
        self._may_have_row = False
        self._missing: Counter[str] = Counter()
        """Workers without a session, and how many looks in a row found them so."""

    async def run(self) -> None:
        """Look until canceled. Ends at once where a pooler stands before Postgres: then leases are the way."""
        is_away, knows_pooler = False, False
        while True:
            try:
                if not knows_pooler:
                    if await self._session.is_shared():
                        _log.info("lost_workers.pooler", found_by="their leases")
                        return
                    knows_pooler = True
                await self.look()
                is_away = False
            except Unavailable as error:
                if not is_away:
                    _log.warning("lost_workers.cannot_look", outage="postgres", error=str(error))
                is_away = True
            except Exception:  # the loop head of looks: a defect here must not leave recovery to leases for good
                _log.exception("lost_workers.crashed")
            await asyncio.sleep(self._every_s)

    async def hold(self) -> None:
        """Take the lock now, before `run` does, so that no claim comes before it. Best effort."""
        try:
            if not await self._session.is_shared():
                await self.look()
        except Unavailable as error:
            _log.warning("lost_workers.cannot_look", error=str(error))

    async def look(self) -> int:
        """Look once, and return how many runs were recovered.

        Raises:
            Unavailable: The database does not answer.
        """
        try:
            async with self._session.connection() as connection:
                look = await look_for_lost_workers(connection, self._worker_id)
                if not look.held:
                    await self._withdraw()
                    self._may_have_row = True
                    # In vain while the server has not noticed yet that an earlier session of this worker broke.
                    await hold_lock(connection, self._worker_id)
        except Unavailable:
            self._missing.clear()
            await self._withdraw()
            raise
        if not look.held:
            self._missing.clear()
            return 0
        self._missing = Counter({worker_id: self._missing[worker_id] + 1 for worker_id in look.lost})
        lost = [worker_id for worker_id, looks in self._missing.items() if looks >= _LOOKS]
        return await self._reconciler.recover_from(lost) if lost else 0

    async def close(self) -> None:
        """Give the lock back, after this worker's runs have ended or were requeued. Best effort."""
        await self._forget()
        await self._session.close()

    async def _withdraw(self) -> None:
        """Leave this worker's runs to their leases, since its session broke. Best effort."""
        if not self._may_have_row:
            return
        # Others may have requeued runs already, and may go on until the row is deleted.
        self._keeper.doubt()
        if await self._forget():
            self._may_have_row = False
        self._keeper.renew_soon()

    async def _forget(self) -> bool:
        try:
            async with asyncio.timeout(_WITHDRAW_S), self._database.connection() as connection:
                await forget_worker(connection, self._worker_id)
        except (Unavailable, TimeoutError) as error:
            _log.warning("lost_workers.not_withdrawn", outage="postgres", error=str(error))
            return False
        return True
