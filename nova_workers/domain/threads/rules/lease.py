"""The lease keeper: one task per process renews all its locks and leases and stops runs whose lease is lost."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass

import structlog
from redis.exceptions import RedisError

from nova_workers.base.clock import Clock
from nova_workers.base.config import RunSettings
from nova_workers.base.errors import Unavailable
from nova_workers.base.observability.metrics import Metrics
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.runs import SHARED_LOSSES, CancelReason, Claim
from nova_workers.domain.runs.sql.leases import renew_leases
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.ledger.database import Database

_log = structlog.get_logger(__name__)

_LOOKS_A_LEASE = 30
"""Checks per lease lifetime: often enough to stop a run early in the last third."""


@dataclass(slots=True, eq=False)
class HeldRun:
    """A run that this process executes: its claim, lock token and abort signal."""

    claim: Claim
    """Held here alone. Compaction replaces it with one that has another parent turn."""
    token: str
    abort: AbortSignal
    renewed_s: float
    """When the lease was last confirmed, on the monotonic clock."""
    trusted_s: float = math.inf
    """How long, after a lease ends, no other worker may claim the run."""
    doubted_s: float = -math.inf
    """When another worker may have taken the run although its lease had not expired."""
    stop_at_step: bool = False
    """Set by a drain: requeue the run at its next step boundary."""
    is_cleared: bool = True
    """Whether the run is not suspect, or not any more."""
    makes_way: bool = False
    """Whether to requeue it at its next step boundary once it is cleared."""
    ending: bool = False
    """The end is being written: a lease that is not renewed now does not count as lost."""

    def is_trusted(self, now_s: float) -> bool:
        """Return whether no other worker can hold the run at a time of the monotonic clock."""
        return now_s - self.renewed_s <= self.trusted_s

    def clear(self) -> None:
        """Note that a step was committed which shows that the run did not end its workers."""
        self.is_cleared = True
        self.stop_at_step = self.stop_at_step or self.makes_way

    def make_way(self) -> None:
        """Requeue the run at its next step boundary once it is cleared."""
        self.makes_way = True
        self.stop_at_step = self.stop_at_step or self.is_cleared

    @property
    def is_doubted(self) -> bool:
        """Whether another worker may have taken the run since its lease was last confirmed."""
        return self.doubted_s >= self.renewed_s


class LeaseKeeper:
    """Renews the locks and leases of this process.

    A run whose lease was not renewed for two thirds of its lifetime is stopped, so this worker has stopped it before
    another worker may claim it (the worker fences itself).
    """

    def __init__(
        self, database: Database, locks: ThreadLocks, settings: RunSettings, clock: Clock, metrics: Metrics
    ) -> None:
        self._database = database
        self._locks = locks
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._held: dict[str, HeldRun] = {}
        self._due = asyncio.Event()

    @property
    def held(self) -> tuple[HeldRun, ...]:
        """The runs that this process executes now."""
        return tuple(self._held.values())

    def keep(self, claim: Claim, token: str, *, requested_s: float) -> HeldRun:
        """Begin to renew a run.

        Args:
            claim: The new claim.
            token: The token of the thread's lock.
            requested_s: Monotonic time before the claim was sent; the lease began no earlier.
        """
        trusted_s = self._settings.lease_ttl_s * 2 / 3
        run = HeldRun(
            claim,
            token,
            AbortSignal(),
            renewed_s=requested_s,
            trusted_s=trusted_s,
            is_cleared=claim.losses < SHARED_LOSSES,
        )
        if claim.cancel_reason is not None:
            run.abort.abort(claim.cancel_reason)
        former = self._held.get(claim.run_id)
        if former is not None:
            # Its lease expired unnoticed, and this process claimed the run again.
            self._lose(former, "taken", "this process claimed the run again")
        self._held[claim.run_id] = run
        return run

    def drop(self, run: HeldRun) -> None:
        """Stop renewing an ended run."""
        if self._held.get(run.claim.run_id) is run:
            del self._held[run.claim.run_id]

    def cancel(self, run_id: str, reason: CancelReason) -> bool:
        """Stop a run at once, if this process executes it."""
        run = self._held.get(run_id)
        if run is None:
            return False
        run.abort.abort(reason)
        return True

    async def run(self) -> None:
        """Renew until canceled, and stop runs whose lease expires.

        These are two tasks, so that a hanging server does not delay the detection of an expired lease.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_regularly(), name="lease.renew")
            group.create_task(self._watch_leases(), name="lease.watch")

    async def _renew_regularly(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.lease_renew_s):
                    await self._due.wait()
            self._due.clear()
            try:
                async with asyncio.timeout(self._settings.lease_renew_s / 2):
                    await self.renew()
            except TimeoutError:
                _log.warning("lease.not_renewed_in_time", outage="servers", held=len(self._held))
            except Exception:
                _log.exception("lease.renew_failed")

    async def _watch_leases(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_ttl_s / _LOOKS_A_LEASE)
            self._fence_self()

    def doubt(self) -> None:
        """Note that others may take the runs of this process, until each is confirmed by a later renewal."""
        now_s = self._clock.monotonic_s()
        for run in self.held:
            run.doubted_s = now_s

    def renew_soon(self) -> None:
        """Renew ahead of time, since the answer has the cancel requests whose notification was missed."""
        self._due.set()

    async def renew(self) -> None:
        """Renew all leases and locks once."""
        held = self.held
        if not held:
            return
        requested_s = self._clock.monotonic_s()
        await asyncio.gather(self._renew_leases(held, requested_s), self._renew_locks(held))

    async def _renew_leases(self, held: tuple[HeldRun, ...], requested_s: float) -> None:
        try:
            async with self._database.connection() as connection:
                renewals = await renew_leases(connection, [run.claim for run in held], self._settings.lease_ttl_s)
        except Unavailable as error:
            _log.warning("lease.database_unavailable", outage="postgres", held=len(held), error=str(error))
            return
        kept = {renewal.run_id: renewal for renewal in renewals}
        for run in held:
            renewal = kept.get(run.claim.run_id)
            if renewal is None:
                self._lose(run, "taken", "another worker holds the run, or it ended")
                continue
            run.renewed_s = requested_s
            if renewal.cancel_reason is not None:
                run.abort.abort(renewal.cancel_reason)

    async def _renew_locks(self, held: tuple[HeldRun, ...]) -> None:
        try:
            lost = await self._locks.extend([(run.claim.thread_id, run.token) for run in held])
        except RedisError as error:
            _log.warning("lease.redis_unavailable", outage="redis", held=len(held), error=str(error))
            return
        for thread_id in lost:
            _log.warning("lease.lock_held_by_another", thread_id=thread_id)

    def _fence_self(self) -> None:
        now_s = self._clock.monotonic_s()
        for run in self.held:
            if not run.is_trusted(now_s):
                self._lose(run, "not_renewed", f"not renewed for {now_s - run.renewed_s:.1f} s")

    def _lose(self, run: HeldRun, reason: str, why: str) -> None:
        if run.ending or self._held.get(run.claim.run_id) is not run or run.abort.reason == "lost":
            return
        self._metrics.lease_losses.labels(reason).inc()
        _log.warning("lease.lost", run_id=run.claim.run_id, fence=run.claim.fence, why=why)
        run.abort.abort("lost")
