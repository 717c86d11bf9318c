"""Cost of a search over an agent's many past conversations."""

import itertools
import random
import time
from collections.abc import Sequence

from nova_workers.domain.search.sql.messages import MessageFilter, search_messages
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.bench.figures import Figure, Result, percentile, spread
from tests.bench.servers import filling
from tests.bench.stage import Bench

_TENANT = "ten_bench"
_WORDS = 30_000
_DIMENSIONS = 384
_CHUNK = 5_000
_P95_MS = 250
"""An agent that searches waits for its model for seconds: a quarter of one does not matter."""

# An index that is built at once takes a tenth of the time of one that grows.
_COSTLY_INDEXES = """
SELECT indexname AS name, indexdef AS definition FROM pg_indexes
 WHERE tablename IN ('message_texts', 'embeddings') AND indexdef ~ 'USING (gin|hnsw)'
"""

# No foreign key is checked in this session.
_TEXTS = """
INSERT INTO message_texts (message_id, tenant_id, agent_id, thread_id, role, content, said_at)
SELECT 'msg_' || lpad((:start::int + n)::text, 26, '0'), :tenant_id, 'nova', 'thr_' || (:start::int + n) % 500, 'user',
       text, now()
  FROM unnest(:texts::text[]) WITH ORDINALITY said (text, n)
"""
_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id)
SELECT 'thr_' || n, :tenant_id, 'nova' FROM generate_series(0, 499) n
"""

_TURNS = """
INSERT INTO turns (id, tenant_id, thread_id, agent_id)
SELECT replace(id, 'thr_', 'turn_'), tenant_id, id, agent_id FROM threads
"""
_MESSAGES = """
INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, kind, role, content)
SELECT message_id, tenant_id, thread_id, replace(thread_id, 'thr_', 'turn_'),
       row_number() OVER (PARTITION BY thread_id ORDER BY message_id), 'query', role, '[]'
  FROM message_texts
"""

# Vectors that are similar within a thread, as those of conversations are.
_VECTORS = """
INSERT INTO embeddings (id, tenant_id, agent_id, thread_id, message_id, said_at, model, dimensions, embedding)
SELECT 'emb_' || message_id, tenant_id, agent_id, thread_id, message_id, said_at, 'bench', 384,
       (SELECT array_agg(random() - 0.5 + (i % 8 = hashtext(x.thread_id) % 8)::int * 0.5)
          FROM generate_series(1, 384) i WHERE x.message_id <> '')::vector
  FROM message_texts x
"""


async def measure_search(bench: Bench) -> Result:
    """Search with two rare words, and with a sentence in which most words are common."""
    sizes = bench.sizes
    chance = random.Random(1)
    words = ["".join(chance.choices("aeioubcdfghklmnprstvw", k=chance.randint(2, 10))) for _ in range(_WORDS)]
    async with bench.servers.fresh_database() as url:
        began_s = time.perf_counter()
        await _fill(url, sizes.searched_messages, words, chance)
        filled_s = time.perf_counter() - began_s
        database = PostgresDatabase(url, pool_size=1)
        try:
            rare = [" ".join(chance.sample(words[2_000:20_000], 2)) for _ in range(sizes.searches)]
            plain = [
                " ".join([*chance.sample(words[:20], 6), chance.choice(words[2_000:])]) for _ in range(sizes.searches)
            ]
            rare_s = [await _search(database, text, chance) for text in rare]
            plain_s = [await _search(database, text, chance) for text in plain]
        finally:
            await database.close()
    return Result(
        "search",
        f"search over {sizes.searched_messages:,} messages of one agent, by words and by meaning",
        (
            *spread(rare_s, bounds_ms={"p95": _P95_MS}),
            Figure("p50 of a sentence of common words", percentile(plain_s, 0.5) * 1000, "ms"),
            Figure("p95 of a sentence of common words", percentile(plain_s, 0.95) * 1000, "ms", bound=_P95_MS),
        ),
        notes=(
            f"{sizes.searches} searches of each kind, one by one, with their transactions; the query's vector is "
            "given. Words are drawn by Zipf's law, 8 to 80 a message. The first figures are of two rare words.",
        ),
        details={"filled_in_s": filled_s},
    )


async def _fill(url: str, messages: int, words: Sequence[str], chance: random.Random) -> None:
    weights = list(itertools.accumulate(1 / (place + 1) for place in range(len(words))))
    async with filling(url) as database, database.connection() as connection:
        await connection.execute("INSERT INTO tenants (id, name) VALUES (:tenant_id, 'bench')", tenant_id=_TENANT)
        await connection.execute("SET session_replication_role = replica")
        indexes = await connection.fetch(_COSTLY_INDEXES)
        assert len(indexes) == 3, indexes
        for index in indexes:
            await connection.execute(f"DROP INDEX {index['name']}")
        await connection.execute(_THREADS, tenant_id=_TENANT)
        for start in range(0, messages, _CHUNK):
            count = min(_CHUNK, messages - start)
            lengths = [chance.randint(8, 80) for _ in range(count)]
            texts = [" ".join(chance.choices(words, cum_weights=weights, k=length)) for length in lengths]
            await connection.execute(_TEXTS, texts=texts, start=start, tenant_id=_TENANT)
        for statement in (_TURNS, _MESSAGES, _VECTORS):
            await connection.execute(statement)
        await connection.execute("SET maintenance_work_mem = '512MB'")
        for index in indexes:
            await connection.execute(index["definition"])
        for table in ("message_texts", "embeddings", "messages", "turns"):
            await connection.execute(f"VACUUM ANALYZE {table}")


async def _search(database: Database, text: str, chance: random.Random) -> float:
    """Search once; return how long it took."""
    vector = [chance.gauss(0, 1) for _ in range(_DIMENSIONS)]
    began_s = time.perf_counter()
    async with database.transaction() as transaction:
        hits = await search_messages(
            transaction, MessageFilter(_TENANT, "nova"), text, vector=vector, model="bench", limit=10
        )
    took_s = time.perf_counter() - began_s
    assert len(hits) == 10, f"{len(hits)} hits for {text!r}"
    return took_s
