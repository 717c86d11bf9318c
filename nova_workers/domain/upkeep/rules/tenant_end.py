"""Deletes what ended tenants have: runs are canceled, then rows, live events and files go, and the tenant last.

Any number of copies may work on one tenant: each step deletes what it still finds. A step is one bounded batch, and the
next one finds out where the tenant stands, so a process that dies leaves nothing behind but work.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.keys import run_events
from nova_workers.domain.runs.sql.cancel import request_cancel, select_open
from nova_workers.domain.runs.sql.filters import RunFilter
from nova_workers.domain.tenants.sql import ending as ledger
from nova_workers.ledger.work import Work

_RUNS: Final = 500
_THREADS: Final = 1_000
_ROWS: Final = 1_000
_KEYS: Final = 1_000

_log = structlog.get_logger(__name__)


class TenantEnd:
    """Deletes ended tenants step by step."""

    def __init__(self, work: Work, redis: Redis, workspace_root: Path) -> None:
        """Keep what is handed in.

        Args:
            work: Cancels runs that are to stop.
            redis: Where live events are.
            workspace_root: Where agents' directories are, a directory a tenant.
        """
        self._work = work
        self._redis = redis
        self._workspace_root = workspace_root

    async def step(self) -> bool:
        """Do one batch for each tenant that was ended. Returns whether the next step has work now.

        False where all that is left is to wait: for runs to stop, or for the purge of threads.

        Raises:
            Unavailable: The database cannot be reached.
        """
        async with self._work.database.connection() as connection:
            ending = await ledger.ending_tenants(connection)
        steps = [await self._step_of(tenant_id) for tenant_id in ending]
        return any(steps)

    async def _step_of(self, tenant_id: str) -> bool:
        async with self._work.database.connection() as connection:
            open_runs = await select_open(connection, tenant_id, RunFilter(), limit=_RUNS)
        if open_runs:
            return await self._cancel(tenant_id, [run.id for run in open_runs])
        async with self._work.database.connection() as connection:
            threads = await ledger.purgeable_threads(connection, tenant_id, limit=_THREADS)
            if not threads and await ledger.has_threads(connection, tenant_id):
                return False
        if threads:
            return await self._give_to_purge(threads)
        return await self._sweep(tenant_id)

    async def _cancel(self, tenant_id: str, run_ids: list[str]) -> bool:
        async with self._work.begin() as tx:
            requests = await request_cancel(tx.connection, tenant_id, run_ids)
            tx.cancel(requests)
        return any(request.ended for request in requests)

    async def _give_to_purge(self, threads: list[str]) -> bool:
        async with self._work.database.connection() as connection:
            runs = await ledger.streamed_runs(connection, threads)
        try:
            for start in range(0, len(runs), _KEYS):
                await self._redis.unlink(*map(run_events, runs[start : start + _KEYS]))
        except RedisError as error:
            _log.warning("tenant.events_kept", why=str(error), until="they expire")
        async with self._work.database.connection() as connection:
            await ledger.mark_threads(connection, threads)
        return True

    async def _sweep(self, tenant_id: str) -> bool:
        for table in ledger.SWEPT:
            async with self._work.database.connection() as connection:
                if await ledger.sweep(connection, tenant_id, table, limit=_ROWS) == _ROWS:
                    return True
        directory = self._workspace_root / tenant_id
        try:
            await asyncio.to_thread(_remove, directory)
        except OSError as error:
            _log.warning("tenant.files_kept", tenant_id=tenant_id, directory=str(directory), why=str(error))
            return False
        async with self._work.database.connection() as connection:
            if await ledger.finish_end(connection, tenant_id):
                _log.info("tenant.removed", tenant_id=tenant_id)
        return False


def _remove(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
