"""What the backfill makes of one portion of runs or imported turns: words, and vectors of the model that is set now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from nova_workers.base.errors import InvalidInput, Unavailable
from nova_workers.contracts.ports import Embedder
from nova_workers.domain.search.sql.backfill import EndedRun, drop_other_models, drop_other_models_of_turns
from nova_workers.domain.search.sql.embeddings import (
    MAX_VECTOR_CHARS,
    MAX_WORD_CHARS,
    EmbeddedMessage,
    MessageText,
    forget_deleted,
    save_embeddings,
    save_texts,
    save_texts_of_turns,
    texts_of_turns_to_embed,
    texts_to_embed,
)
from nova_workers.ledger.database import Database

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


class PortionMaker:
    """Indexes what runs lack. A run that fails does not block the others."""

    def __init__(self, database: Database, embedder: Embedder | None, *, batch: int) -> None:
        """Keep what is handed in.

        Args:
            database: Of the ledger.
            embedder: Makes vectors; None makes words alone.
            batch: Texts of one call of it.
        """
        self._database = database
        self._embedder = embedder
        self._batch = batch

    async def make(
        self, tenant_id: str, runs: Sequence[EndedRun], done: Backfilled, must_stop: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Make what runs of a tenant lack, and count it. False where it had to stop before it was through.

        Raises:
            Unavailable: The database or the embedder does not answer.
            ConfigurationError: The embedder is not what the settings say.
        """
        if not runs:
            return True
        keys = await self._save_words([(tenant_id, str(run.run_id)) for run in runs], done)
        try:
            return self._embedder is None or not keys or await self._make_vectors(self._embedder, keys, done, must_stop)
        finally:
            async with self._database.connection() as connection:
                await forget_deleted(connection, [str(run.thread_id) for run in runs])

    async def make_imported(
        self,
        tenant_id: str,
        thread_id: str,
        turn_ids: Sequence[str],
        done: Backfilled,
        must_stop: Callable[[], Awaitable[bool]],
    ) -> bool:
        """Make what imported turns of a thread lack, as `make` does.

        Raises:
            Unavailable: The database or the embedder does not answer.
            ConfigurationError: The embedder is not what the settings say.
        """
        embedder = self._embedder
        try:
            async with self._database.connection() as connection:
                done.words += await save_texts_of_turns(connection, tenant_id, turn_ids, max_chars=MAX_WORD_CHARS)
            if embedder is None:
                return True
            async with self._database.connection() as connection:
                texts = await texts_of_turns_to_embed(
                    connection, tenant_id, turn_ids, model=embedder.model, max_chars=MAX_VECTOR_CHARS
                )
            if not await self._embed(embedder, texts, done, must_stop):
                return False
            async with self._database.connection() as connection:
                done.dropped += await drop_other_models_of_turns(connection, tenant_id, turn_ids, model=embedder.model)
            return True
        finally:
            async with self._database.connection() as connection:
                await forget_deleted(connection, [thread_id])

    async def _make_vectors(
        self,
        embedder: Embedder,
        keys: Sequence[tuple[str, str]],
        done: Backfilled,
        must_stop: Callable[[], Awaitable[bool]],
    ) -> bool:
        async with self._database.connection() as connection:
            texts = await texts_to_embed(connection, keys, model=embedder.model, max_chars=MAX_VECTOR_CHARS)
        if not await self._embed(embedder, texts, done, must_stop):
            return False
        async with self._database.connection() as connection:
            done.dropped += await drop_other_models(
                connection, keys[0][0], [run for _, run in keys], model=embedder.model
            )
        return True

    async def _save_words(self, keys: Sequence[tuple[str, str]], done: Backfilled) -> list[tuple[str, str]]:
        """Index the words of runs, and return the runs that succeeded. A run that fails does not block the others."""
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
        self,
        embedder: Embedder,
        texts: Sequence[MessageText],
        done: Backfilled,
        must_stop: Callable[[], Awaitable[bool]],
    ) -> bool:
        for start in range(0, len(texts), self._batch):
            # What was made stays made, so a portion that is begun again is shorter.
            if start and await must_stop():
                return False
            await self._save(embedder, texts[start : start + self._batch], done)
        return True

    async def _save(self, embedder: Embedder, texts: Sequence[MessageText], done: Backfilled) -> None:
        try:
            vectors = await embedder.embed([item.text for item in texts])
        except InvalidInput as error:
            if len(texts) > 1:
                # One text was refused: embed them one by one.
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
