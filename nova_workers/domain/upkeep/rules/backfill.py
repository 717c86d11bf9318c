"""The backfill: indexes messages that search cannot find yet, by words and with a vector of the configured model.

The effect does this for each run that ends. The backfill handles runs that ended while effects were off, those whose
effects failed permanently, imported conversations and, after a change of the model, all runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final, cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.clock import Clock
from nova_workers.base.config import EffectSettings
from nova_workers.base.errors import ConfigurationError, Unavailable
from nova_workers.base.keys import broker_queue
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.vocabulary import LIVE_QUEUES
from nova_workers.contracts.ports import Embedder
from nova_workers.domain.search.sql import backfill as ledger
from nova_workers.domain.upkeep.rules.portions import Backfilled, PortionMaker
from nova_workers.domain.upkeep.sql import cursors
from nova_workers.domain.upkeep.sql.cursors import Cursor, Work
from nova_workers.ledger.database import Database

__all__ = ["Backfill", "Backfilled"]

_RUNS: Final = 100
"""The runs of a portion: some 200 messages, which take the local model 2 to 10 s, and a walk over what is made 10
ms."""

_SETTLED: Final = timedelta(minutes=5)
"""Runs that ended less long ago are the effect's. It is far above what a transaction takes."""

_IDLE: Final = timedelta(minutes=10)
"""A tenant with nothing left is checked again after this."""

_IMPORT_IDLE: Final = timedelta(hours=6)
"""An imported thread with nothing left is checked again after this, for a change of the model."""

_PROVIDER_AWAY: Final = timedelta(minutes=1)
_FAILED: Final = timedelta(minutes=10)
"""A tenant whose portion failed unexpectedly is retried after this."""

_LEASE: Final = timedelta(minutes=5)
"""A time above what a portion may take; a portion of a worker that died is taken again after it."""

_PATIENCE: Final = timedelta(minutes=7)
"""A cursor of another model is taken over after this long without work on it: its last worker is gone, or idle."""

_EFFECTS_LATE: Final = timedelta(seconds=1)
_WAITING: Final = 10
"""Doorbells in the broker from which on the fleet is busy. A few are always on their way."""

_log = structlog.get_logger(__name__)


class Backfill:
    """Indexes what is missing, portion by portion, tenant by tenant. Any number of instances share the cursors."""

    def __init__(
        self,
        database: Database,
        redis: Redis,
        embedder: Embedder | None,
        settings: EffectSettings,
        metrics: Metrics,
        *,
        clock: Clock,
    ) -> None:
        """Keep what is handed in; nothing is started.

        Args:
            database: Of the ledger.
            redis: The broker, whose queues say whether live work waits.
            embedder: Makes vectors; not closed here. None makes words alone.
            settings: Whether, how often, and texts of one call.
            metrics: What was made.
            clock: Measures the tick.
        """
        self._database = database
        self._redis = redis
        self._maker = PortionMaker(database, embedder, batch=settings.embedding_batch)
        self._variant = "" if embedder is None else embedder.model
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._draining = False
        self._working: set[asyncio.Task[None]] = set()

    async def tick(self) -> Backfilled:
        """Work for a while, unless live work waits or nothing is left. Goes on where the last tick stopped.

        Raises:
            Unavailable: The database cannot be reached; the next tick continues.
        """
        done = Backfilled()
        if self._draining or not (self._settings.enabled and self._settings.backfill):
            return done
        work = asyncio.create_task(self._work(done))
        self._working.add(work)
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait([work])
            raise
        finally:
            self._working.discard(work)
            self._count(done)
        if not work.cancelled():
            work.result()
        return done

    def drain(self) -> None:
        """Stop permanently and release the cursors held. On the loop; returns at once."""
        self._draining = True
        for work in self._working:
            work.cancel()

    async def _work(self, done: Backfilled) -> None:
        until_s = self._clock.monotonic_s() + self._settings.backfill_every_s * self._settings.backfill_busy
        async with self._database.connection() as connection:
            await cursors.add_tenant_cursors(connection, variant=self._variant)
        while not await self._must_stop(until_s, done):
            cursor = await self._take("backfill") or await self._take("imports")
            if cursor is None or not await self._portion(cursor, until_s, done):
                return

    async def _take(self, work: Work) -> Cursor | None:
        async with self._database.connection() as connection:
            return await cursors.take_cursor(connection, work, lease=_LEASE, variant=self._variant, patience=_PATIENCE)

    async def _portion(self, cursor: Cursor, until_s: float, done: Backfilled) -> bool:
        """Do one portion of a tenant. Returns whether another one is worth trying now."""
        move = _Move(cursor)
        make = self._make_imported if cursor.work == "imports" else self._make
        try:
            await make(move, done, lambda: self._must_stop(until_s, done))
            return True
        except (Unavailable, ConfigurationError) as error:
            move.pause = _PROVIDER_AWAY
            _log.warning("backfill.put_off", tenant_id=cursor.tenant_id, error=str(error), pause_s=move.pause.seconds)
            return False
        except Exception:
            # The error is in this tenant's portion: continue with the others.
            move.pause = _FAILED
            _log.exception("backfill.failed", tenant_id=cursor.tenant_id, pause_s=move.pause.seconds)
            return True
        finally:
            # Also when the worker stops, so that another continues at once and not after the lease.
            await asyncio.shield(self._release(move))

    async def _make(self, move: _Move, done: Backfilled, must_stop: Callable[[], Awaitable[bool]]) -> None:
        cursor = move.cursor
        async with self._database.connection() as connection:
            runs = await ledger.ended_runs(
                connection,
                cursor.tenant_id,
                passed_at=cursor.passed_at,
                passed_id=cursor.passed_id,
                settled=_SETTLED,
                limit=_RUNS,
            )
        covered = [run for run in runs if run.covered]
        if await self._maker.make(cursor.tenant_id, covered, done, must_stop):
            last = (runs[-1].ended_at, runs[-1].id) if runs else None
            move.to(last, more=len(runs) == _RUNS, idle=_IDLE)
            done.runs += len(runs)

    async def _make_imported(self, move: _Move, done: Backfilled, must_stop: Callable[[], Awaitable[bool]]) -> None:
        cursor = move.cursor
        async with self._database.connection() as connection:
            turn_ids = await ledger.imported_turns(
                connection, cursor.tenant_id, cursor.target, passed_id=cursor.passed_id, limit=_RUNS
            )
        if turn_ids is None:
            move.is_over = True
        elif await self._maker.make_imported(cursor.tenant_id, cursor.target, turn_ids, done, must_stop):
            last = (None, turn_ids[-1]) if turn_ids else None
            move.to(last, more=len(turn_ids) == _RUNS, idle=_IMPORT_IDLE)
            done.runs += len(turn_ids)

    async def _release(self, move: _Move) -> None:
        try:
            async with self._database.connection() as connection:
                if move.is_over:
                    await cursors.drop_cursor(connection, move.cursor)
                    return
                await cursors.move_cursor(
                    connection,
                    move.cursor,
                    passed_at=move.passed_at,
                    passed_id=move.passed_id,
                    behind=move.behind,
                    pause=move.pause,
                )
        except Unavailable as error:
            _log.warning("backfill.not_released", outage="postgres", error=str(error), due_again_after_s=_LEASE.seconds)

    async def _must_stop(self, until_s: float, done: Backfilled) -> bool:
        if self._draining or self._clock.monotonic_s() >= until_s:
            return True
        done.yielded = await self._live_work_waits()
        return done.yielded

    async def _live_work_waits(self) -> bool:
        async with self._database.connection() as connection:
            if await ledger.live_work_waits(connection, patience=_EFFECTS_LATE):
                return True
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for queue in LIVE_QUEUES:
                    pipeline.llen(broker_queue(queue))
                depths = await cast(Awaitable[list[Any]], pipeline.execute())
        except RedisError:
            # Without a broker there is no work to be seen.
            return False
        return sum(depths) >= _WAITING

    def _count(self, done: Backfilled) -> None:
        for what in ("words", "vectors", "dropped", "refused"):
            self._metrics.backfilled.labels(what).inc(getattr(done, what))
        if done.runs:
            _log.info(
                "backfill.worked",
                runs=done.runs,
                words=done.words,
                vectors=done.vectors,
                dropped=done.dropped,
                yielded=done.yielded,
            )


class _Move:
    """Where a cursor moves when it is released. By default it stays, and is due again at once."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.passed_at = cursor.passed_at
        self.passed_id = cursor.passed_id
        self.behind = True
        self.pause = timedelta()
        self.is_over = False
        """Whether there is nothing left to walk: the cursor is dropped."""

    def to(self, last: tuple[datetime | None, str] | None, *, more: bool, idle: timedelta) -> None:
        """Pass everything up to a position; None: there was nothing."""
        if last is not None:
            self.passed_at, self.passed_id = last
        self.behind = more
        self.pause = timedelta() if more else idle
