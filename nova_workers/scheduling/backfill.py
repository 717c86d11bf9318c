"""The backfill: what was said and cannot be searched gets its words, and its vector of the model that is set now.

The effect does it for each run that ends. What is left for here: runs that ended while effects were off, those whose
effects failed for good, and, after a change of the model, all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.clock import Clock
from nova_workers.config import EffectSettings
from nova_workers.contracts.ports import Embedder
from nova_workers.errors import ConfigurationError, InvalidInput, Unavailable
from nova_workers.keys import broker_queue
from nova_workers.ledger import backfill as ledger
from nova_workers.ledger import upkeep_cursors as cursors
from nova_workers.ledger.backfill import EndedRun
from nova_workers.ledger.database import Database
from nova_workers.ledger.embeddings import (
    MAX_VECTOR_CHARS,
    MAX_WORD_CHARS,
    EmbeddedMessage,
    MessageText,
    forget_deleted,
    save_embeddings,
    save_texts,
    texts_to_embed,
)
from nova_workers.ledger.upkeep_cursors import Cursor
from nova_workers.observability.metrics import Metrics

__all__ = ["Backfill", "Backfilled"]

_RUNS: Final = 100
"""Of one portion: some 200 messages, which take the local model 2 to 10 s, and a walk over what is made 10 ms."""

_SETTLED: Final = timedelta(minutes=5)
"""Runs that ended less long ago are the effect's. It is far above what a transaction takes."""

_IDLE: Final = timedelta(minutes=10)
"""A tenant of whom nothing was left is looked at again after this."""

_PROVIDER_AWAY: Final = timedelta(minutes=1)
_FAILED: Final = timedelta(minutes=10)
"""A tenant whose portion failed in a way that nobody foresaw is tried again after this."""

_LEASE: Final = timedelta(minutes=5)
"""Above what a portion may take; a portion of a worker that died is taken again after it."""

_PATIENCE: Final = timedelta(minutes=7)
"""A cursor of another model is taken over once nobody worked on it for this long: its last worker is gone, or idle."""

_EFFECTS_LATE: Final = timedelta(seconds=1)
_WAITING: Final = 10
"""Doorbells in the broker from which on the fleet is busy. A few are always on their way."""

_LIVE_QUEUES: Final = ("interactive", "background", "effects")

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Backfilled:
    """What one tick did.

    Attributes:
        runs: Looked at and done.
        yielded: It stopped since live work waits.
    """

    runs: int = 0
    words: int = 0
    vectors: int = 0
    dropped: int = 0
    refused: int = 0
    yielded: bool = False


class Backfill:
    """Makes what is missing, portion by portion, tenant by tenant. Any number of copies share the cursors."""

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
        self._embedder = embedder
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._draining = False
        self._working: set[asyncio.Task[None]] = set()

    async def tick(self) -> Backfilled:
        """Work for a while, unless live work waits or nothing is left. Goes on where the last tick stopped.

        Raises:
            Unavailable: The database cannot be reached; the next tick goes on.
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
        """Stop for good, giving back what is held. On the loop; returns at once."""
        self._draining = True
        for work in self._working:
            work.cancel()

    @property
    def _variant(self) -> str:
        return "" if self._embedder is None else self._embedder.model

    async def _work(self, done: Backfilled) -> None:
        until_s = self._clock.monotonic_s() + self._settings.backfill_every_s * self._settings.backfill_busy
        async with self._database.connection() as connection:
            await cursors.add_tenants(connection, variant=self._variant)
        while not await self._must_stop(until_s, done):
            async with self._database.connection() as connection:
                cursor = await cursors.take(
                    connection, "backfill", lease=_LEASE, variant=self._variant, patience=_PATIENCE
                )
            if cursor is None or not await self._portion(cursor, until_s, done):
                return

    async def _portion(self, cursor: Cursor, until_s: float, done: Backfilled) -> bool:
        """Do one portion of a tenant. Returns whether another one is worth trying now."""
        move = _Move(cursor)
        try:
            async with self._database.connection() as connection:
                runs = await ledger.ended_runs(
                    connection,
                    cursor.tenant_id,
                    passed_at=cursor.passed_at,
                    passed_id=cursor.passed_id,
                    settled=_SETTLED,
                    limit=_RUNS,
                )
            if await self._make(cursor.tenant_id, [run for run in runs if run.covered], until_s, done):
                move.to(runs, more=len(runs) == _RUNS)
                done.runs += len(runs)
            return True
        except (Unavailable, ConfigurationError) as error:
            move.pause = _PROVIDER_AWAY
            _log.warning("backfill.put_off", tenant_id=cursor.tenant_id, error=str(error), pause_s=move.pause.seconds)
            return False
        except Exception:
            # Whatever it was, it was in this tenant's portion: the others go on.
            move.pause = _FAILED
            _log.exception("backfill.failed", tenant_id=cursor.tenant_id, pause_s=move.pause.seconds)
            return True
        finally:
            # Also when the worker stops: somebody else goes on at once, and not after the lease.
            await asyncio.shield(self._give_back(move))

    async def _give_back(self, move: _Move) -> None:
        try:
            async with self._database.connection() as connection:
                await cursors.move_cursor(
                    connection,
                    move.cursor,
                    passed_at=move.passed_at,
                    passed_id=move.passed_id,
                    behind=move.behind,
                    pause=move.pause,
                )
        except Unavailable as error:
            _log.warning("backfill.not_given_back", error=str(error), due_again_after_s=_LEASE.seconds)

    async def _make(self, tenant_id: str, runs: Sequence[EndedRun], until_s: float, done: Backfilled) -> bool:
        """Make what runs lack. False where it had to stop before it was through."""
        if not runs:
            return True
        keys = await self._save_words([(tenant_id, str(run.run_id)) for run in runs], done)
        try:
            return self._embedder is None or not keys or await self._embed(self._embedder, keys, until_s, done)
        finally:
            async with self._database.connection() as connection:
                await forget_deleted(connection, [run.thread_id for run in runs])

    async def _save_words(self, keys: Sequence[tuple[str, str]], done: Backfilled) -> list[tuple[str, str]]:
        """Make the words of runs, and return the runs. One of whom that fails is left out, and holds up no other."""
        try:
            async with self._database.connection() as connection:
                done.words += await save_texts(connection, keys, max_chars=MAX_WORD_CHARS)
        except Unavailable:
            raise
        except Exception:
            if len(keys) == 1:
                _log.exception("backfill.passed_over", tenant_id=keys[0][0], run_id=keys[0][1])
                return []
            middle = len(keys) // 2
            return [*await self._save_words(keys[:middle], done), *await self._save_words(keys[middle:], done)]
        return list(keys)

    async def _embed(
        self, embedder: Embedder, keys: Sequence[tuple[str, str]], until_s: float, done: Backfilled
    ) -> bool:
        async with self._database.connection() as connection:
            texts = await texts_to_embed(connection, keys, model=embedder.model, max_chars=MAX_VECTOR_CHARS)
        size = self._settings.embedding_batch
        for start in range(0, len(texts), size):
            # What was made stays made, so a portion that is begun again is shorter.
            if start and await self._must_stop(until_s, done):
                return False
            await self._save(embedder, texts[start : start + size], done)
        async with self._database.connection() as connection:
            done.dropped += await ledger.drop_other_models(
                connection, keys[0][0], [run for _, run in keys], model=embedder.model
            )
        return True

    async def _save(self, embedder: Embedder, texts: Sequence[MessageText], done: Backfilled) -> None:
        try:
            vectors = await embedder.embed([item.text for item in texts])
        except InvalidInput as error:
            if len(texts) > 1:
                # One of them: the others shall have theirs.
                for item in texts:
                    await self._save(embedder, [item], done)
                return
            done.refused += 1
            _log.warning("backfill.refused", message_id=texts[0].message_id, error=str(error))
            return
        embedded = [EmbeddedMessage(item, vector) for item, vector in zip(texts, vectors, strict=True)]
        async with self._database.connection() as connection:
            await save_embeddings(connection, embedded, model=embedder.model)
        done.vectors += len(embedded)

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
                for queue in _LIVE_QUEUES:
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
    """Where a cursor goes when it is given back: until it is told otherwise, it stays, and is due again at once."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.passed_at = cursor.passed_at
        self.passed_id = cursor.passed_id
        self.behind = True
        self.pause = timedelta()

    def to(self, runs: Sequence[EndedRun], *, more: bool) -> None:
        """Pass these runs."""
        if runs:
            self.passed_at, self.passed_id = runs[-1].ended_at, runs[-1].id
        self.behind = more
        self.pause = timedelta() if more else _IDLE
