"""The worker's side of the run protocol: answer a doorbell by locking a thread and claiming its next run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog
from redis.exceptions import RedisError
from structlog.contextvars import bound_contextvars

from nova_workers.base.config import RunSettings
from nova_workers.base.errors import RunLost, Unavailable
from nova_workers.base.ids import new_id, new_ulid
from nova_workers.base.observability.redaction import hiding
from nova_workers.base.observability.redactor import Redactor
from nova_workers.base.observability.tracing import Attributes
from nova_workers.contracts.installs import NOTHING_INSTALLED, Installation
from nova_workers.contracts.runs import COMMON_POOL, Claim, Doorbell, PlannedEffect, WorkerPool
from nova_workers.domain.runs.rules.attempts import AttemptRunner, ExecutorParts
from nova_workers.domain.runs.rules.installs import Installs
from nova_workers.domain.runs.sql.claim import (
    Capped,
    Elsewhere,
    Refused,
    Suspect,
    Unusable,
    claim_next,
    lock_caps,
)
from nova_workers.domain.runs.sql.installs import Lacking, find_lacking
from nova_workers.domain.threads.rules.lease import HeldRun
from nova_workers.ledger.database import Connection, Database

_log = structlog.get_logger(__name__)

_TRIES = 8
"""Threads to try for one doorbell. When other workers took this many first, they are serving the queue."""


_RING_AGAIN_S = 1.0
_UNLOCK_AGAIN_S = 0.5
_LOCK_AGAIN_S = 0.5


class RunExecutor:
    """Executes runs. One object serves all worker slots of a process."""

    def __init__(self, parts: ExecutorParts) -> None:
        self._parts = parts
        self._attempts = AttemptRunner(parts)
        self._pool = parts.fair_queue.pool
        self.draining = False
        """Set while the process drains: it passes doorbells on to other workers."""
        self._makes_way = False
        self._grace_is_over = False
        self.slots = 0
        """Worker slots of the process; 0 if unknown."""
        self._answering = 0
        self._unlocking: set[asyncio.Task[None]] = set()

    @property
    def effects(self) -> tuple[PlannedEffect, ...]:
        """What follows runs, in order."""
        return self._parts.effects

    @property
    def installs(self) -> Installs:
        """The code of users that this worker has."""
        return self._parts.installs

    def drain(self) -> None:
        """Claim nothing more, and requeue every run at its next step boundary. Returns at once."""
        self.draining = True
        for run in self._parts.keeper.held:
            run.stop_at_step = True

    def make_way(self) -> None:
        """Requeue a run, once it is not suspect any more, at its next step boundary. Returns at once."""
        self._makes_way = True
        for run in self._parts.keeper.held:
            run.make_way()

    def stop_in_mid_step(self) -> None:
        """Stop and requeue every run within its step: the grace of the drain is over. Returns at once."""
        self._grace_is_over = True
        for run in self._parts.keeper.held:
            _log.warning("worker.stopped_in_mid_step", run_id=run.claim.run_id)
            run.abort.abort("drain")

    async def answer(self, bell: Doorbell) -> None:
        """Answer a doorbell: execute one run, if any can be.

        If the fleet has free slots, execute the next run of the doorbell's thread. If more doorbells wait than slots
        are free, or that thread has nothing to claim, the doorbell only means that a slot is free, and the thread that
        is most entitled is served. So there are never fewer doorbells than runnable threads, in whatever order they
        are served. A duplicate doorbell finds nothing to claim and returns in milliseconds. One that was rung for
        workers with certain code of users means its own thread: no other worker could answer what is left.

        While the database does not answer, the doorbell is rung again.
        """
        if self.draining:
            self._ring_elsewhere(bell)
            return
        self._answering += 1
        try:
            tried: set[str] = set()
            most_waiting = None if bell.is_routed else max(self.slots - self._answering, 0)
            worked = await self._work_on(bell, most_waiting=most_waiting)
            if worked:
                return
            if worked is not None:
                tried.add(bell.thread_id)
            await self._serve_fairly(bell, tried)
        except Unavailable as error:
            _log.warning("doorbell.waits", outage="postgres", run_id=bell.run_id, error=str(error))
            # In this slot, so that the doorbells of a database that is away do not keep the fleet busy.
            await asyncio.sleep(_RING_AGAIN_S)
            self._parts.work.ring([bell])
        finally:
            self._answering -= 1

    async def rehearse(self) -> None:
        """Answer for a thread that does not exist: so the lock's script is loaded, and the claim's statement prepared.

        Raises:
            Unavailable: The database does not answer.
        """
        bell = Doorbell(new_id("run"), new_id("thr"), "interactive")
        await self._work_on(bell, most_waiting=self.slots)

    async def answer_alone(self, bell: Doorbell) -> None:
        """Execute the next run of a doorbell's thread, also a suspect, and no other run.

        A worker that answers another doorbell of the thread has its lock for the moment in which it finds the suspect.
        """
        try:
            if not await self._work_on(bell, once=True) and not self.draining:
                await asyncio.sleep(_LOCK_AGAIN_S)
                await self._work_on(bell, once=True)
        except Unavailable as error:
            _log.warning("doorbell.waits", run_id=bell.run_id, error=str(error))
            await asyncio.sleep(_RING_AGAIN_S)
            self._parts.work.ring([bell])

    async def _serve_fairly(self, bell: Doorbell, tried: set[str]) -> None:
        """Execute a run of the most entitled thread; if another worker takes it first, try the next one."""
        tries = 0
        while tries < _TRIES:
            async with self._parts.fair_queue.next(bell, tried) as chosen:
                if chosen.thread_id in tried or await self._work_on(chosen):
                    return
                tried.add(chosen.thread_id)
            # A thread that begins with a suspect is not chosen again, and does not use up this doorbell.
            suspects = self._parts.suspects
            tries += suspects is None or chosen.thread_id not in suspects.thread_ids

    async def _work_on(self, bell: Doorbell, *, most_waiting: int | None = None, once: bool = False) -> bool | None:
        """Execute the next run of a thread.

        Args:
            bell: The thread's doorbell.
            most_waiting: Do nothing while more doorbells wait on the queue. With fewer, each is served at once, so
                there is nothing to choose. None does not look.
            once: Ring for what came meanwhile, in place of executing it too.

        Returns:
            Whether there was a run: False also if another worker holds the thread. None if more doorbells wait.
        """
        worked = False
        while not self.draining:
            token = new_ulid()
            locked = await self._lock(bell, token, most_waiting)
            if locked is None:
                return None
            if not locked:
                return worked
            most_waiting = None
            following = capped = None
            try:
                async with self._claimed(bell, token) as run:
                    if run is not None:
                        worked = True
                        following = await self._attempts.execute(run)
                        capped = run.claim if run.claim.capped else None
                if capped is not None:
                    following = await self._next_under_cap(capped) or following
            finally:
                signaled = await self._unlock(bell, token)
            if signaled and once:
                following = following or bell
            if following is not None:
                # Through the broker, not in this slot: one thread's long queue must not delay other threads. The run is
                # of the same tenant, and so of this pool.
                key = self._parts.installs.installation.key if bell.is_routed else ""
                self._parts.work.ring([following.in_pool(self._pool.name, key)])
            if following is not None or not signaled:
                return worked
        self._ring_elsewhere(bell)
        return True

    def _ring_elsewhere(self, bell: Doorbell) -> None:
        """Pass a doorbell on, since this process drains: to any worker, as it may be the only one with its code."""
        self._parts.work.ring([bell.in_pool(self._pool.name)])

    async def _lock(self, bell: Doorbell, token: str, most_waiting: int | None) -> bool | None:
        locks = self._parts.locks
        try:
            if most_waiting is None:
                return await locks.acquire(bell.thread_id, token)
            return await locks.acquire_without_backlog(
                bell.thread_id, token, queue=bell.queue, most_waiting=most_waiting
            )
        except RedisError as error:
            # The claim's fence decides ownership; the lock only avoids useless claims.
            _log.warning("lock.redis_unavailable", outage="redis", thread_id=bell.thread_id, error=str(error))
            return True

    async def _unlock(self, bell: Doorbell, token: str) -> bool:
        try:
            return await self._parts.locks.release(bell.thread_id, token)
        except RedisError as error:
            _log.warning("lock.not_released", outage="redis", thread_id=bell.thread_id, error=str(error))
            unlocking = asyncio.create_task(self._unlock_later(bell, token))
            self._unlocking.add(unlocking)
            unlocking.add_done_callback(self._unlocking.discard)
            return False

    async def _unlock_later(self, bell: Doorbell, token: str) -> None:
        """Release a lock once Redis answers. Otherwise the next run of the thread would wait until it expires."""
        clock = self._parts.clock
        until_s = clock.monotonic_s() + self._parts.settings.runs.lease_ttl_s
        while clock.monotonic_s() < until_s:
            await asyncio.sleep(_UNLOCK_AGAIN_S)
            try:
                signaled = await self._parts.locks.release(bell.thread_id, token)
            except RedisError:
                continue
            if signaled:
                self._parts.work.ring([bell])
            return

    @asynccontextmanager
    async def _claimed(self, bell: Doorbell, token: str) -> AsyncGenerator[HeldRun | None]:
        """Claim the next run of a thread and hold it within the block; yield None if there is none for this worker.

        Within the block, log lines and spans carry the run's ids and its redactor is current. A lost run ends the block
        without an error.
        """
        run = await self._claim(bell, token)
        if run is None:
            yield None
            return
        with (
            bound_contextvars(**_log_fields(run.claim)),
            self._parts.tracing.conversation(run.claim.thread_id),
            self._parts.tracing.span(
                f"invoke_agent {run.claim.agent.name}",
                parent=run.claim.traceparent,
                attributes=_span_attributes(run.claim),
            ),
            hiding(Redactor()),
        ):
            try:
                yield run
            except RunLost as error:
                _log.warning("run.lost", why=error.message)
            finally:
                self._parts.keeper.drop(run)

    async def _claim(self, bell: Doorbell, token: str) -> HeldRun | None:
        """Claim the next run of a thread and begin to hold it; None if there is none for this worker.

        A run that another pool of workers executes is announced to that pool, one that needs other code of users to
        workers with it, and a suspect is left to a process of its own. One whose model provider cannot be used, as this
        process knows, is held.
        """
        parts = self._parts
        requested_s = parts.clock.monotonic_s()
        claim = await claim_run(
            parts.work.database,
            bell.thread_id,
            worker_id=parts.worker_id,
            runs=parts.settings.runs,
            pool=self._pool,
            with_suspects=parts.suspects is None,
            unusable=parts.holds.unusable,
            installation=parts.installs.installation,
        )
        if isinstance(claim, Elsewhere):
            parts.work.ring([bell.in_pool(claim.pool)])
        elif isinstance(claim, Lacking):
            await parts.installs.route(bell, claim)
        elif isinstance(claim, Unusable):
            await parts.holds.refuse(bell, claim)
        elif isinstance(claim, Suspect) and parts.suspects is not None:
            parts.suspects.execute(replace(bell, run_id=claim.run_id))
        if not isinstance(claim, Claim):
            return None
        run = parts.keeper.keep(claim, token, requested_s=requested_s)
        # The drain may have begun, and its grace may have ended, while the claim was on its way.
        run.stop_at_step = self.draining
        if self._makes_way:
            run.make_way()
        if self._grace_is_over:
            run.abort.abort("drain")
        return run

    async def _next_under_cap(self, claim: Claim) -> Doorbell | None:
        """Return a doorbell for a run that the cap held back: its own doorbell was consumed without a claim."""
        try:
            return await self._parts.fair_queue.after_cap(claim.tenant_id)
        except Unavailable as error:
            # As after a crash here, the reconciler rings for runs that now fit under the cap.
            _log.warning("cap.doorbell_not_sent", outage="postgres", error=str(error))
            return None


async def claim_run(
    database: Database,
    thread_id: str,
    *,
    worker_id: str,
    runs: RunSettings,
    pool: WorkerPool = COMMON_POOL,
    with_suspects: bool = True,
    unusable: Collection[str] = (),
    installation: Installation = NOTHING_INSTALLED,
) -> Claim | Elsewhere | Suspect | Unusable | Lacking | None:
    """Claim the next run of a thread.

    A run that another version of its code began is claimed if no live worker has that version.

    Returns:
        The claim; that the next run is for another pool, or for a process of its own, or needs what is `unusable` here,
        or code that is not in `installation`; None if no run is queued, another run is active, or a pause, a hold or a
        full cap prevents it.

    Raises:
        Unavailable: The database does not answer.
    """

    async def claim_on(
        connection: Connection, *, caps_locked: bool, any_version: bool = False
    ) -> Claim | Capped | Elsewhere | Suspect | Unusable | Refused | None:
        return await claim_next(
            connection,
            thread_id,
            worker_id=worker_id,
            lease_ttl_s=runs.lease_ttl_s,
            max_attempts=runs.max_attempts,
            pool=pool,
            with_suspects=with_suspects,
            unusable=unusable,
            installation=installation,
            any_version=any_version,
            caps_locked=caps_locked,
        )

    async with database.connection() as connection:
        claim = await claim_on(connection, caps_locked=False)
    if isinstance(claim, Capped):
        async with database.transaction() as connection:
            await lock_caps(connection, claim.tenant_id)
            claim = await claim_on(connection, caps_locked=True)
            if isinstance(claim, Refused):
                lacking = await find_lacking(connection, claim.run_id, pool, installation)
                if lacking is None or not lacking.goes_on_here:
                    return lacking
                claim = await claim_on(connection, caps_locked=True, any_version=True)
    return None if isinstance(claim, Capped | Refused) else claim


def _log_fields(claim: Claim) -> dict[str, str | int]:
    return {
        "run_id": claim.run_id,
        "thread_id": claim.thread_id,
        "tenant_id": claim.tenant_id,
        "attempt": claim.attempt,
        "fence": claim.fence,
    }


def _span_attributes(claim: Claim) -> Attributes:
    agent = claim.agent
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent.name,
        "gen_ai.agent.id": claim.agent_id,
        "gen_ai.agent.version": str(claim.agent_version),
        "gen_ai.agent.description": agent.description or None,
        "gen_ai.request.model": claim.model or agent.model,
        "gen_ai.request.max_tokens": agent.max_tokens,
        "gen_ai.request.temperature": agent.temperature,
        "gen_ai.output.type": "json" if agent.output_schema is not None else None,
        "nova.run.id": claim.run_id,
        "nova.thread.id": claim.thread_id,
        "nova.agent.id": claim.agent_id,
        "nova.attempt": claim.attempt,
        "nova.queue": claim.queue,
    }
