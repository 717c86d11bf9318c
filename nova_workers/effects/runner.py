"""The chain of effects: claims what is due, has it done, writes how it ended.

The chain lives in the ledger's rows, so it survives every process and every doorbell. A run's effects are done
in the order of their positions; an effect that failed for good does not hold up those behind it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from nova_workers.clock import Clock
from nova_workers.config import EffectSettings
from nova_workers.effects.handler import Effect, EffectHandler
from nova_workers.errors import NovaError
from nova_workers.ledger.database import Database
from nova_workers.ledger.runs.effects import DueEffect, EffectEnd, claim_effects, release_effects, settle_effects
from nova_workers.observability.metrics import Metrics
from nova_workers.observability.redaction import redact
from nova_workers.observability.tracing import Tracing

__all__ = ["EffectRunner", "backoff_s"]

_TIMEOUT_S: Final = 90.0
"""Most time of one handler call: a batch of 64 long texts takes 9 s on a busy core, a title 30 s."""

_START_WINDOW_S: Final = 30.0
"""A claimed effect whose turn has not come after this is given back: its call might outlast its lease."""

_IN_WAITING: Final = 8
"""Batches of a kind that may wait for a turn. Each holds a slot of the worker; the rest wait in the ledger."""

_LEASE: Final = timedelta(seconds=_START_WINDOW_S + _TIMEOUT_S + 10)
"""An effect whose worker died is due again after this."""

_RELEASE_S: Final = 2.0
"""Most time to give effects back when the worker stops."""

_ERROR_CHARS: Final = 2_000

_log = structlog.get_logger(__name__)


def backoff_s(attempt: int, *, base_s: float, max_s: float, spread: float) -> float:
    """Return how long to wait after a failed try.

    Doubles with each try up to `max_s`; of that, between half and all, so that effects that failed together
    do not come back together.

    Args:
        attempt: The try that failed, from 1.
        base_s: The wait after the first.
        max_s: The longest wait.
        spread: A random number from 0 to 1.
    """
    ceiling_s = min(max_s, base_s * 2.0 ** min(attempt - 1, 60))
    return ceiling_s * (0.5 + spread / 2)


class EffectRunner:
    """Works off the effects that are due. Any number of runners, in any number of processes, share the rows."""

    def __init__(
        self,
        database: Database,
        settings: EffectSettings,
        *,
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
            effects: One of each kind. Rows of other kinds stay pending.
            clock: Measures durations; due times are the database's.
            metrics: Outcomes and durations.
            tracing: Each effect shows in its run's trace.
            rng: Spreads the backoff.
        """
        self._database = database
        self._settings = settings
        self._handlers: dict[str, EffectHandler] = {effect.kind: effect.handler for effect in effects}
        self._clock = clock
        self._metrics = metrics
        self._tracing = tracing
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._draining = False
        self._working: set[asyncio.Task[None]] = set()
        self._permits = {kind: asyncio.Semaphore(handler.at_once) for kind, handler in self._handlers.items()}
        self._open: Counter[str] = Counter()
        """Batches of each kind that were begun, or are being claimed."""

    async def run_due(self) -> int:
        """Work off one round of effects that are due.

        When cancelled or drained, what is not done yet is given back at once and its attempt is not counted.

        Returns:
            How many effects were claimed. As long as it is not 0, more may be due: ring again. Of a kind that has
            enough in waiting none are claimed; whoever ends one of those rings.

        Raises:
            Unavailable: The database cannot be reached; whatever was claimed is due again after its lease.
        """
        if self._draining or not self._settings.enabled or not self._handlers:
            return 0
        claimed, given_up = await self._claim()
        claimed_s = self._clock.monotonic_s()
        for effect in given_up:
            self._count(effect, "failed")
            _log.error("effect.failed", **_fields(effect), error="its worker was lost in every attempt")
        await self._run_all(self._split(claimed), claimed_s)
        return len(claimed) + len(given_up)

    def drain(self) -> None:
        """Stop for good: calls under way are cancelled and their effects given back. On the loop; returns at once."""
        self._draining = True
        for task in self._working:
            task.cancel()

    async def close(self) -> None:
        """Close every handler."""
        for handler in self._handlers.values():
            await handler.close()

    async def _claim(self) -> tuple[list[DueEffect], list[DueEffect]]:
        room = {kind: handler.at_once + _IN_WAITING - self._open[kind] for kind, handler in self._handlers.items()}
        batches = Counter({kind: min(room[kind], self._handlers[kind].at_once) for kind in room if room[kind] > 0})
        if not batches:
            return [], []
        self._open.update(batches)
        try:
            async with self._database.connection() as connection:
                return await claim_effects(
                    connection,
                    [(kind, self._handlers[kind].batch_size * count) for kind, count in batches.items()],
                    max_attempts=self._settings.max_attempts,
                    lease=_LEASE,
                )
        finally:
            self._open.subtract(batches)

    async def _run_all(self, batches: Sequence[Sequence[DueEffect]], claimed_s: float) -> None:
        """Wait for every batch, also for those beside one that fails; give back those that were stopped."""
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
            await asyncio.wait(work)
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
        async with self._database.connection() as connection:
            await settle_effects(connection, ends)
        for end in ends:
            self._count(end.effect, end.outcome)

    async def _attempt(
        self, part: Callable[[Sequence[DueEffect]], Awaitable[None]], batch: Sequence[DueEffect]
    ) -> Exception | None:
        """Have one part done, and return why it was not."""
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
        reason = redact(f"{type(error).__name__}: {error}")[:_ERROR_CHARS]
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
        if not batch:
            return
        try:
            async with asyncio.timeout(_RELEASE_S), self._database.connection() as connection:
                await release_effects(connection, batch)
        except (NovaError, TimeoutError) as error:
            _log.warning("effects.not_released", effects=len(batch), error=str(error), due_again_after_s=_LEASE.seconds)
            return
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
