"""Cost of a search over an agent's many past conversations, and of the vectors that make it possible."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from nova_workers.domain.search.sql.embeddings import save_embeddings
from nova_workers.domain.search.sql.messages import INDEXED_DIMENSIONS, MessageFilter, search_messages
from nova_workers.ledger.database import Connection, Database, PostgresDatabase
from tests.bench.figures import Figure, Result, percentile, spread
from tests.bench.past_messages import AGENT_ID, MODEL, TENANT_ID, PastMessages
from tests.bench.servers import filling
from tests.bench.stage import Bench

_P95_MS: Final = 50
_INSERT_MS: Final = 5
_RECALL: Final = 95
"""Percent of the nearest vectors, by comparison with all."""
_NEAREST: Final = 50
"""As many as a search by meaning takes."""
_BATCH: Final = 16
"""Vectors in a statement. The effect claims as many runs at once."""

_EXACT = f"""
SELECT message_id FROM embeddings
 WHERE dimensions = {INDEXED_DIMENSIONS} AND model = :model AND tenant_id = :tenant_id AND agent_id = :agent_id
 ORDER BY (embedding <=> :vector::real[]::vector) + 0
 LIMIT {_NEAREST}
"""
"""An index knows no sum, so all vectors are compared."""


async def measure_search(bench: Bench) -> Result:
    """Search by words, by meaning, and by both; compare the nearest vectors with all; insert further vectors."""
    sizes = bench.sizes
    past = PastMessages(sizes.searched_messages, unembedded=sizes.inserted_vectors)
    async with bench.servers.fresh_database() as url:
        began_s = time.perf_counter()
        async with filling(url) as database, database.connection() as connection:
            await past.write(connection)
            filled_s = time.perf_counter() - began_s
            vectors = await past.new_vectors(connection, sizes.searches)
            exact = [await _exact(connection, vector) for vector in vectors[: sizes.exact_searches]]
        database = PostgresDatabase(url, pool_size=1)
        try:
            rare = [past.rare_words() for _ in vectors]
            common = [past.common_words() for _ in vectors]
            rare_s = [await _search(database, text, vector) for text, vector in zip(rare, vectors, strict=True)]
            common_s = [await _search(database, text, vector) for text, vector in zip(common, vectors, strict=True)]
            words_s = [await _search(database, text, None) for text in (*rare, *common)]
            meaning_s = [await _search(database, "", vector) for vector in vectors]
            found = [await _nearest(database, vector) for vector in vectors[: sizes.exact_searches]]
            inserted_s = await _insert(database, past)
        finally:
            await database.close()
    return Result(
        "search",
        f"search over {sizes.searched_messages:,} messages of one agent, by words and by meaning",
        (
            *spread(rare_s, bounds_ms={"p95": _P95_MS}),
            _p95("p95 of a sentence of common words", common_s),
            _p95("p95 by words alone", words_s),
            _p95("p95 by meaning alone", meaning_s),
            *(
                Figure(f"of the {most} nearest found", _recall(found, exact, most), "%", bound=_RECALL, at_least=True)
                for most in (10, _NEAREST)
            ),
            Figure("insertion of a vector", inserted_s * 1000, "ms", bound=_INSERT_MS),
        ),
        notes=(
            f"{sizes.searches} searches of each kind, one by one, with their transactions; the query's vector is "
            "given. Words are drawn by Zipf's law, 8 to 80 a message. The first figures are of two rare words. "
            f"Vectors are in clusters; of {len(exact)} searches the nearest are compared with those among all vectors. "
            f"{sizes.inserted_vectors:,} vectors are inserted, {_BATCH} a statement.",
        ),
        details={"filled_in_s": filled_s},
    )


def _p95(label: str, taken_s: Sequence[float]) -> Figure:
    return Figure(label, percentile(taken_s, 0.95) * 1000, "ms", bound=_P95_MS)


async def _search(database: Database, text: str, vector: Sequence[float] | None) -> float:
    """Search once; return how long it took."""
    began_s = time.perf_counter()
    async with database.transaction() as transaction:
        hits = await search_messages(
            transaction, MessageFilter(TENANT_ID, AGENT_ID), text, vector=vector, model=MODEL, limit=10
        )
    took_s = time.perf_counter() - began_s
    assert hits or vector is None, f"no hits for {text!r}"
    return took_s


async def _nearest(database: Database, vector: Sequence[float]) -> list[str]:
    async with database.transaction() as transaction:
        hits = await search_messages(
            transaction, MessageFilter(TENANT_ID, AGENT_ID), "", vector=vector, model=MODEL, limit=_NEAREST
        )
    return [hit.message_id for hit in hits]


async def _exact(connection: Connection, vector: Sequence[float]) -> list[str]:
    rows = await connection.fetch(_EXACT, model=MODEL, tenant_id=TENANT_ID, agent_id=AGENT_ID, vector=list(vector))
    return [row["message_id"] for row in rows]


def _recall(found: Sequence[Sequence[str]], exact: Sequence[Sequence[str]], most: int) -> float:
    """Return how many percent of the nearest were found."""
    hits = sum(len({*near[:most]} & {*all_near[:most]}) for near, all_near in zip(found, exact, strict=True))
    return 100 * hits / sum(len(all_near[:most]) for all_near in exact)


async def _insert(database: Database, past: PastMessages) -> float:
    """Insert the vectors of messages that have none; return how long each took."""
    async with database.connection() as connection:
        new = await past.new_messages(connection)
        began_s = time.perf_counter()
        for first in range(0, len(new), _BATCH):
            await save_embeddings(connection, new[first : first + _BATCH], model=MODEL)
    return (time.perf_counter() - began_s) / len(new)
