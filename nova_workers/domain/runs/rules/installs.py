"""Says which code of users this worker has, and passes on the doorbells of runs that need other code."""

from __future__ import annotations

import asyncio

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.errors import Unavailable
from nova_workers.base.keys import broker_queue
from nova_workers.base.vocabulary import RUN_QUEUES
from nova_workers.contracts.installs import Installation
from nova_workers.contracts.runs import Doorbell, WorkerPool, pool_queue
from nova_workers.domain.runs.sql import installs as ledger
from nova_workers.domain.runs.sql.installs import Lacking
from nova_workers.ledger.work import Work

_log = structlog.get_logger(__name__)

_EVERY_S = 5.0
_RELEASED = 500
"""Runs that are released in one statement. With more, the rest follows with the next pass."""


class Installs:
    """Announces what this worker has, and routes runs that need something else. One object per process."""

    def __init__(self, work: Work, redis: Redis, installation: Installation, pool: WorkerPool, worker_id: str) -> None:
        self._work = work
        self._redis = redis
        self._worker_id = worker_id
        self.pool = pool
        self.installation = installation
        """What this worker has."""
        self._is_withdrawn = False
        self._saying = asyncio.Lock()
        """Orders announcements and the withdrawal, which is the last word."""

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of the broker that are for workers with this installation; none without code of users."""
        key = self.installation.key
        return tuple(pool_queue(queue, self.pool.name, key) for queue in RUN_QUEUES) if key else ()

    async def run(self) -> None:
        """Announce until this worker takes no more runs."""
        is_first = True
        while not self._is_withdrawn:
            try:
                await self.announce()
                if is_first:
                    is_first = False
                    _log.info("worker.installed", projects=[each.label for each in self.installation.codes])
                    await self.release()
            except Unavailable as error:
                _log.warning("installs.not_announced", outage="postgres", error=error.message)
            await asyncio.sleep(_EVERY_S)

    async def announce(self) -> None:
        """Say what this worker has, and that it is alive; nothing once it takes no more runs.

        Raises:
            Unavailable: The database does not answer.
        """
        async with self._saying:
            if self._is_withdrawn:
                return
            async with self._work.database.connection() as connection:
                await ledger.announce(connection, self._worker_id, self.pool, self.installation)

    async def withdraw(self) -> None:
        """Say that this worker takes no more runs. Best effort: its row expires."""
        self._is_withdrawn = True
        if not self.installation.codes:
            return
        try:
            async with self._saying, self._work.database.connection() as connection:
                await ledger.withdraw(connection, self._worker_id)
        except Unavailable as error:
            _log.warning("installs.not_withdrawn", outage="postgres", error=error.message)

    async def route(self, bell: Doorbell, lacking: Lacking) -> None:
        """Ring where a run can be executed; without such a worker it waits for one.

        Raises:
            Unavailable: The database does not answer.
        """
        if lacking.key is not None:
            self._work.ring([bell.in_pool(self.pool.name, lacking.key)])
            return
        async with self._work.database.connection() as connection:
            await ledger.park(connection, lacking.run_id)
        _log.warning("run.needs_project", run_id=lacking.run_id, thread_id=bell.thread_id)

    async def pass_on(self, bell: Doorbell) -> None:
        """Ring again, at workers that have what its run needs: another thread is served in its place.

        Raises:
            Unavailable: The database does not answer.
        """
        async with self._work.database.connection() as connection:
            lacking = await ledger.find_lacking(connection, bell.run_id, self.pool, self.installation)
        if lacking is not None and not lacking.goes_on_here:
            await self.route(bell, lacking)
        elif self.installation.key:
            self._work.ring([bell.in_pool(self.pool.name, self.installation.key)])

    async def release(self) -> None:
        """Ring for runs that waited for code which a live worker has now. May run concurrently.

        Raises:
            Unavailable: The database does not answer; the next pass finds them again.
        """
        async with self._work.begin_statement() as tx:
            tx.ring(await ledger.release_parked(tx.connection, self.pool, limit=_RELEASED))

    async def forget_old(self) -> None:
        """Forget workers that ended long ago, and the doorbells that only they would have taken.

        Their runs are rung for again by the reconciler.

        Raises:
            Unavailable: The database does not answer.
        """
        async with self._work.database.connection() as connection:
            gone = await ledger.forget_old(connection)
        queues = [broker_queue(pool_queue(queue, pool, key)) for pool, key in gone if key for queue in RUN_QUEUES]
        if not queues:
            return
        try:
            await self._redis.delete(*queues)
        except RedisError as error:
            _log.warning("installs.doorbells_kept", queues=queues, error=str(error))
