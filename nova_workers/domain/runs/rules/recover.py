"""The reconciler: recovers lost runs, doorbells and waits. Passes are idempotent and may run concurrently."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.config import RunSettings
from nova_workers.base.keys import broker_queue
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.vocabulary import EFFECT_KINDS, RUN_QUEUES
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.runs.rules.applying import CancelApplier
from nova_workers.domain.runs.rules.holds import Holds
from nova_workers.domain.runs.rules.installs import Installs
from nova_workers.domain.runs.rules.scheduled import Scheduled
from nova_workers.domain.runs.rules.waiting import Waiting
from nova_workers.domain.runs.sql.fairness import take_doorbells_under_caps
from nova_workers.domain.runs.sql.leases import recover_expired, take_overdue_doorbells
from nova_workers.domain.runs.sql.workers import recover_runs_of
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.domain.upkeep.sql import overdue as upkeep
from nova_workers.ledger.work import Work

_log = structlog.get_logger(__name__)

_LIMIT = 500
_RINGS = 20
"""Doorbell batches per queue and pass: enough for a mass firing. The next pass takes the rest."""
_KEYS = 5_000
_KEY_BATCHES = 50
"""Key batches per pass: more than a fleet adds between two passes at 400 submissions a second."""
_FEW = 50
"""Doorbells in the broker that are no backlog."""
_BROKEN_S = 0.5
"""Age of doorbells that a connection which broke a moment ago may have lost."""
_BUSY_FACTOR = 6
"""Factor on the age at which a doorbell counts as lost, while the broker still holds doorbells."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The result of one pass."""

    recovered: int
    rerung: int
    effects_due: bool


class Reconciler:
    """Requeues runs of lost workers, rings again for queued runs without a recent doorbell, and ends due waits."""

    def __init__(
        self,
        work: Work,
        redis: Redis,
        settings: RunSettings,
        metrics: Metrics,
        *,
        locks: ThreadLocks,
        waiting: Waiting,
        cancels: CancelApplier,
        scheduled: Scheduled,
        holds: Holds,
        installs: Installs,
        effect_kinds: Sequence[str] = EFFECT_KINDS,
    ) -> None:
        self._effect_kinds = effect_kinds
        self._work = work
        self._locks = locks
        self._redis = redis
        self._waiting = waiting
        self._cancels = cancels
        self._scheduled = scheduled
        self._holds = holds
        self._installs = installs
        self._settings = settings
        self._metrics = metrics

    async def reconcile(self) -> Reconciled:
        """Run one pass.

        Raises:
            Unavailable: The database does not answer; the next pass finds all of it again.
        """
        recovered = await self._recover()
        await self._scheduled.start_due()
        await self._holds.release_due()
        await self._installs.forget_old()
        await self._installs.release()
        rerung = sum([await self._ring_again(queue) for queue in RUN_QUEUES])
        async with self._work.begin_statement() as tx:
            effects_due = await upkeep.has_due_effects(tx.connection, self._effect_kinds)
            if effects_due:
                tx.ring_effects()
        # Last, so that a failure here does not prevent the recovery above.
        await self._cancels.release_stuck()
        await self._waiting.sweep()
        return Reconciled(recovered, rerung, effects_due)

    async def ring_lost(self) -> None:
        """Ring for all queued runs that no doorbell waits for: one was lost if its reply was on a broken connection.

        Raises:
            Unavailable: The database does not answer; the next pass finds the same runs.
        """
        for queue in RUN_QUEUES:
            # With a backlog the slots are busy, and each free one serves any thread.
            if await self._waiting_in_broker(queue) < _FEW:
                await self._ring_older(queue, _BROKEN_S)
        self._work.dispatcher.ring_effects()

    async def upkeep(self) -> int:
        """Delete expired idempotency keys in bounded batches and check every wait; return the number of keys."""
        await self._waiting.sweep(thorough=True)
        deleted = 0
        for _ in range(_KEY_BATCHES):
            async with self._work.database.connection() as connection:
                batch = await upkeep.delete_expired_keys(connection, limit=_KEYS)
            deleted += batch
            if batch < _KEYS:
                break
        return deleted

    async def recover_from(self, worker_ids: Collection[str]) -> int:
        """Requeue the runs of workers whose session has ended, and return how many.

        Rings also for queued runs, whose doorbells those workers may have taken.

        Raises:
            Unavailable: The database does not answer.
        """
        recovered = 0
        while True:
            async with self._work.database.connection() as connection:
                bells = await recover_runs_of(connection, sorted(worker_ids), limit=_LIMIT)
            await self._ring_recovered(bells, why="its worker ended")
            recovered += len(bells)
            if len(bells) < _LIMIT:
                break
        await self.ring_lost()
        return recovered

    async def _recover(self) -> int:
        async with self._work.database.connection() as connection:
            bells = await recover_expired(connection, limit=_LIMIT)
        await self._ring_recovered(bells, why="its lease expired")
        return len(bells)

    async def _ring_recovered(self, bells: Sequence[Doorbell], *, why: str) -> None:
        for bell in bells:
            self._metrics.recoveries.labels("requeued").inc()
            _log.warning("run.recovered", run_id=bell.run_id, thread_id=bell.thread_id, why=why)
        await self._ring(bells)

    async def _ring_again(self, queue: str) -> int:
        # Doorbells in the broker mean that workers are busy, not that doorbells were lost; more would only pile up.
        factor = _BUSY_FACTOR if await self._waiting_in_broker(queue) else 1
        return await self._ring_older(queue, self._settings.rering_after_s * factor)

    async def _ring_older(self, queue: str, older_than_s: float) -> int:
        rung = 0
        for _ in range(_RINGS):
            async with self._work.database.connection() as connection:
                bells = await take_overdue_doorbells(connection, queue=queue, older_than_s=older_than_s, limit=_LIMIT)
            await self._ring(bells)
            rung += len(bells)
            if len(bells) < _LIMIT:
                break
        async with self._work.database.connection() as connection:
            bells = await take_doorbells_under_caps(connection, queue=queue, older_than_s=older_than_s)
        await self._ring(bells)
        rung += len(bells)
        if rung:
            self._metrics.doorbells.labels(queue, "rerung").inc(rung)
            _log.info("doorbell.rung_again", queue=queue, count=rung)
        return rung

    async def _ring(self, bells: Sequence[Doorbell]) -> None:
        """Ring for threads without a running run, and first remove locks that were not released.

        The doorbell would end at such a lock until it expires. A worker that is about to claim loses its lock as well;
        the claim's guard still admits one worker only.
        """
        try:
            await self._locks.remove([bell.thread_id for bell in bells])
        except RedisError as error:
            _log.warning("lock.not_removed", threads=len(bells), error=str(error))
        self._work.ring(bells)

    async def _waiting_in_broker(self, queue: str) -> int:
        try:
            return await self._redis.llen(broker_queue(queue))
        except RedisError:
            return 0
