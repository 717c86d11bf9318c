"""The `embeddings` effect: indexes the messages of a run for search by words and by meaning."""

from collections.abc import Sequence

from nova_workers.domain.effects.rules.provider import EmbeddingProvider
from nova_workers.domain.effects.sql import DueEffect
from nova_workers.domain.search.sql.embeddings import (
    MAX_VECTOR_CHARS,
    MAX_WORD_CHARS,
    EmbeddedMessage,
    forget_deleted,
    save_embeddings,
    save_texts,
    texts_to_embed,
)
from nova_workers.ledger.database import Database


class EmbeddingEffect:
    """Indexes the user's messages and the answer of each run, many runs at once.

    Every message is indexed once by words, and has at most one vector per model: repeating a run adds what is missing.
    Words are saved first, so that a message can be found while the embedding provider is busy or unavailable.
    """

    def __init__(
        self, database: Database, provider: EmbeddingProvider | None, *, batch_size: int, at_once: int = 1
    ) -> None:
        """Store the parts.

        Args:
            database: Source of texts and store of vectors.
            provider: None turns vectors off: search uses words alone.
            batch_size: Maximum runs per call, and texts per call of the provider.
            at_once: Maximum concurrent calls; the local model processes one at a time anyway.
        """
        self._database = database
        self._provider = provider
        self._batch_size = batch_size
        self._at_once = at_once

    @property
    def batch_size(self) -> int:
        """Most effects of one call."""
        return self._batch_size

    @property
    def at_once(self) -> int:
        """Most calls at the same time."""
        return self._at_once

    async def prepare(self, effects: Sequence[DueEffect]) -> None:
        """Save the words. See `EffectHandler.prepare`."""
        async with self._database.connection() as connection:
            await save_texts(connection, _runs(effects), max_chars=MAX_WORD_CHARS)

    async def handle(self, effects: Sequence[DueEffect]) -> None:
        """Save the vectors. See `EffectHandler.handle`."""
        try:
            if self._provider is not None:
                await self._embed(self._provider, _runs(effects))
        finally:
            async with self._database.connection() as connection:
                await forget_deleted(connection, [effect.thread_id for effect in effects])

    async def close(self) -> None:
        """Close the provider."""
        if self._provider is not None:
            await self._provider.close()

    async def _embed(self, provider: EmbeddingProvider, runs: Sequence[tuple[str, str]]) -> None:
        async with self._database.connection() as connection:
            texts = await texts_to_embed(connection, runs, model=provider.model, max_chars=MAX_VECTOR_CHARS)
        for start in range(0, len(texts), self._batch_size):
            batch = texts[start : start + self._batch_size]
            vectors = await provider.embed([item.text for item in batch])
            embedded = [EmbeddedMessage(item, vector) for item, vector in zip(batch, vectors, strict=True)]
            async with self._database.connection() as connection:
                await save_embeddings(connection, embedded, model=provider.model)


def _runs(effects: Sequence[DueEffect]) -> list[tuple[str, str]]:
    return [(effect.tenant_id, effect.run_id) for effect in effects]
