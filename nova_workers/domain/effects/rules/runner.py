"""Claims due effects, calls their handlers and records the results.

The state is in the ledger's rows, so it survives crashes and lost doorbells. Claimed effects have leases like those of
runs, which are renewed while their handlers work. A run's effects are handled in the order
of their positions; one that failed permanently does not block the next.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.config import EffectSettings, RunSettings
from nova_workers.base.errors import EngineFailure, NovaError
from nova_workers.base.observability.addresses import bare_addresses
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.redaction import redact
from nova_workers.base.observability.tracing import Tracing
from nova_workers.domain.effects.rules.handler import Effect, EffectHandler
from nova_workers.domain.effects.rules.leases import EffectLeases
from nova_workers.domain.effects.sql import ClaimedEffects, DueEffect, EffectEnd
from nova_workers.ledger.database import Database

_TIMEOUT_S: Final = 90.0
"""Time limit of a handler call: a batch of 64 long texts takes 9 s on a busy core, a title 30 s."""

_START_WINDOW_S: Final = 30.0
"""A claimed effect that has waited this long for a permit is released: another worker may be free."""

_MAX_WAITING: Final = 8
"""Batches of a kind that may wait for a permit. Each occupies a worker slot; the rest wait in the ledger."""

_SLOTS_PER_WAITING: Final = 16
"""A small process lets fewer wait, so that its slots are left for runs: one for each so many slots."""

_ERROR_CHARS: Final = 2_000

_log = structlog.get_logger(__name__)


def backoff_s(attempt: int, *, base_s: float, max_s: float, spread: float) -> float:
    """Return how long to wait after a failed attempt.

    Doubles with each attempt up to `max_s`; between half and all of that, so that effects that failed together are not
    retried together.

    Args:
        attempt: The failed attempt, from 1.
        base_s: The wait after the first.
        max_s: The longest wait.
        spread: A random number from 0 to 1.
    """
    ceiling_s = min(max_s, base_s * 2.0 ** min(attempt - 1, 60))
    return ceiling_s * (0.5 + spread / 2)


class EffectRunner:
    """Handles due effects. Any number of runners, in any number of processes, share the rows."""

    def __init__(
        self,
        database: Database,
        settings: EffectSettings,
        *,
        leases: RunSettings,
        effects: Sequence[Effect],
        clock: Clock,
        metrics: Metrics,
        tracing: Tracing,
        rng: random.Random | None = None,
    ) -> None:
        """Keep what is handed in; nothing is started.

        Args:
            database: Where the rows are.
            settings: Attempts and backoff.
            leases: Their duration, how often they are renewed, and how long a model provider is waited for.
            effects: One of each kind. Rows of other kinds stay pending.
            clock: Measures durations; due times are the database's.
            metrics: Outcomes and durations.
            tracing: Each effect shows in its run's trace.
            rng: Spreads the backoff.
        """
        self._settings = settings
        self._leases = EffectLeases(database, leases, clock)
        self._patience_s = leases.provider_patience_background_s
        self._handlers: dict[str, EffectHandler] = {effect.kind: effect.handler for effect in effects}
        self._clock = clock
        self._metrics = metrics
        self._tracing = tracing
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self.slots: int | None = None
        """Worker slots of the process; None if unknown."""
        self._draining = False
        self._working: set[asyncio.Task[None]] = set()
        self._permits = {kind: asyncio.Semaphore(handler.at_once) for kind, handler in self._handlers.items()}
        self._open: Counter[str] = Counter()
        """Batches of each kind that are in progress or being claimed."""
        self._prepared: dict[str, tuple[datetime, str] | None] = {
            effect.kind: None for effect in effects if effect.prepares_all
        }
        """By kind, the last effect that was prepared before it was claimed."""
        self._preparing = asyncio.Lock()

    async def run_due(self) -> int:
        """Handle one round of due effects.

        When canceled or drained, unfinished effects are released at once and their attempt is not counted.

        Returns:
            How many effects were claimed; if none, how many were put off until an earlier effect of their run ends. If
            it is not 0, more may be due: ring again. A kind with enough waiting batches is not claimed; the call that
            finishes one of those rings again.

        Raises:
            Unavailable: The database cannot be reached; claimed effects are due again after their lease.
        """
        if self._draining or not self._settings.enabled or not self._handlers:
            return 0
        await self._prepare_unclaimed()
        found = await self._claim()
        claimed_s = self._clock.monotonic_s()
        for effect in found.given_up:
            self._count(effect, "failed")
            _log.error("effect.failed", **_fields(effect), error="its worker was lost in every attempt")
        await self._run_all(self._split(found.claimed), claimed_s)
        return len(found.claimed) + len(found.given_up) or found.put_off

    def drain(self) -> None:
        """Stop permanently: cancel the calls in progress and release their effects. On the loop; returns at once."""
        self._draining = True
        for task in self._working:
            task.cancel()

    async def close(self) -> None:
        """Close every handler."""
        for handler in self._handlers.values():
            await handler.close()

    def _room(self) -> dict[str, int]:
        """Return how many more batches of each kind may be in progress."""
        waiting = _MAX_WAITING if self.slots is None else min(_MAX_WAITING, self.slots // _SLOTS_PER_WAITING)
        return {kind: handler.at_once + waiting - self._open[kind] for kind, handler in self._handlers.items()}

    async def _prepare_unclaimed(self) -> None:
        """Prepare the effects of kinds without room, so that their quick part waits for no other effect.

        What fails here is prepared again when the effect is claimed, and counts then. Other processes may do the same:
        that changes nothing.
        """
        full = [kind for kind, room in self._room().items() if room <= 0 and kind in self._prepared]
        if not full or self._preparing.locked():
            return
        async with self._preparing:
            for kind in full:
                handler = self._handlers[kind]
                while not self._draining:
                    found = await self._leases.unclaimed(kind, after=self._prepared[kind], limit=handler.batch_size)
                    if not found:
                        break
                    error = await self._attempt(handler.prepare, [each.effect for each in found])
                    if error is not None:
                        _log.warning(
                            "effect.not_prepared", kind=kind, error=bare_addresses(redact(str(error)))[:_ERROR_CHARS]
                        )
                    self._prepared[kind] = found[-1].position

    async def _claim(self) -> ClaimedEffects:
        room = self._room()
        batches = Counter({kind: min(room[kind], self._handlers[kind].at_once) for kind in room if room[kind] > 0})
        if not batches:
            return ClaimedEffects()
        self._open.update(batches)
        try:
            wanted = [(kind, self._handlers[kind].batch_size * count) for kind, count in batches.items()]
            return await self._leases.claim(wanted, max_attempts=self._settings.max_attempts)
        finally:
            self._open.subtract(batches)

    async def _run_all(self, batches: Sequence[Sequence[DueEffect]], claimed_s: float) -> None:
        """Wait for every batch, even if one fails; release those that were canceled."""
        if not batches:
            return
        work = {asyncio.create_task(self._run_batch(batch, claimed_s)): batch for batch in batches}
        self._working.update(work)
        for task, batch in work.items():
            kind = batch[0].kind
            self._open[kind] += 1
            task.add_done_callback(partial(self._close_batch, kind))
        if self._draining:  # since the claim was sent
            self.drain()
        try:
            await self._leases.keep(work)
        except asyncio.CancelledError:
            for task in work:
                task.cancel()
            await asyncio.wait(work)
            raise
        finally:
            self._working.difference_update(work)
            await self._release([effect for task, batch in work.items() if task.cancelled() for effect in batch])
        for task in work:
            if not task.cancelled():
                task.result()

    def _close_batch(self, kind: str, _: asyncio.Task[None]) -> None:
        self._open[kind] -= 1

    def _split(self, effects: Sequence[DueEffect]) -> list[list[DueEffect]]:
        batches = [[effect] for effect in effects if effect.attempt > 1]
        for kind, handler in self._handlers.items():
            fresh = [effect for effect in effects if effect.kind == kind and effect.attempt == 1]
            batches += [fresh[i : i + handler.batch_size] for i in range(0, len(fresh), handler.batch_size)]
        return batches

    async def _run_batch(self, batch: Sequence[DueEffect], claimed_s: float) -> None:
        kind = batch[0].kind
        started_at, started_s = self._clock.now(), self._clock.monotonic_s()
        error = await self._attempt(self._handlers[kind].prepare, batch)
        if error is None:
            async with self._permits[kind]:
                started_at, started_s = self._clock.now(), self._clock.monotonic_s()
                if started_s - claimed_s > _START_WINDOW_S:
                    await self._release(batch)
                    return
                error = await self._attempt(self._handlers[kind].handle, batch)
        self._metrics.effect_duration_s.labels(kind).observe(self._clock.monotonic_s() - started_s)
        self._trace(batch, started_at)
        ends = [self._end(effect, error) for effect in batch]
        await self._leases.settle(ends)
        for end in ends:
            self._count(end.effect, end.outcome)

    async def _attempt(
        self, part: Callable[[Sequence[DueEffect]], Awaitable[None]], batch: Sequence[DueEffect]
    ) -> Exception | None:
        """Call one part of a handler, and return its error."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await part(batch)
        except NovaError as expected:
            return expected
        except Exception as unexpected:  # the loop head of effects: whatever it was, the run is not touched
            _log.exception("effect.crashed", kind=batch[0].kind, effects=len(batch))
            return unexpected
        return None

    def _trace(self, batch: Sequence[DueEffect], started_at: datetime) -> None:
        ended_at = self._clock.now()
        for effect in batch:
            self._tracing.record(
                f"effect.{effect.kind}",
                start=started_at,
                end=ended_at,
                parent=effect.traceparent,
                attributes={"nova.run_id": effect.run_id, "nova.attempt": effect.attempt, "nova.batch": len(batch)},
            )

    def _end(self, effect: DueEffect, error: Exception | None) -> EffectEnd:
        if error is None:
            _log.debug("effect.done", **_fields(effect))
            return EffectEnd(effect, "done")
        reason = bare_addresses(redact(f"{type(error).__name__}: {error}"))[:_ERROR_CHARS]
        if isinstance(error, EngineFailure) and error.outage is not None and effect.age_s < self._patience_s:
            # Like a run, it waits for its model provider: each time half as long as it has waited.
            delay_s = min(max(effect.age_s / 2, self._settings.retry_base_s), self._settings.retry_max_s)
            _log.warning("effect.postponed", **_fields(effect), error=reason, delay_s=round(delay_s, 1))
            return EffectEnd(effect, "postponed", reason, timedelta(seconds=delay_s))
        if effect.attempt >= self._settings.max_attempts:
            _log.error("effect.failed", **_fields(effect), error=reason)
            return EffectEnd(effect, "failed", reason)
        delay_s = backoff_s(
            effect.attempt,
            base_s=self._settings.retry_base_s,
            max_s=self._settings.retry_max_s,
            spread=self._rng.random(),
        )
        _log.warning("effect.retried", **_fields(effect), error=reason, delay_s=round(delay_s, 1))
        return EffectEnd(effect, "retried", reason, timedelta(seconds=delay_s))

    async def _release(self, batch: Sequence[DueEffect]) -> None:
        if batch and await self._leases.release(batch):
            for effect in batch:
                self._count(effect, "released")

    def _count(self, effect: DueEffect, outcome: str) -> None:
        self._metrics.effects.labels(effect.kind, outcome).inc()


def _fields(effect: DueEffect) -> dict[str, object]:
    return {
        "effect_id": effect.id,
        "kind": effect.kind,
        "run_id": effect.run_id,
        "thread_id": effect.thread_id,
        "tenant_id": effect.tenant_id,
        "effect_attempt": effect.attempt,
    }
