"""Search by words and by meaning, and the insertion of vectors, beside many vectors of one agent."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Sequence

from nova_workers.domain.search.sql.embeddings import EmbeddedMessage, MessageText, save_embeddings
from nova_workers.domain.search.sql.messages import MessageFilter, search_messages
from tests.bench.growth.costs import Cost, Operation, repeated
from tests.bench.growth.ground import Ground

_MODEL = "growth"
_DIMENSIONS = 384
_INDEX = "ix_embeddings__hnsw_half_384"
_NEW = 2
"""Messages of a run."""

_READS = "HNSW reads some thousand places of its index, which is larger than the memory that Postgres has for itself."
_SEARCH = Operation("search by words and by meaning", _READS)
_WORDS = Operation("search by words only")
_SAVE = Operation("insert the vectors of a run's two messages", _READS)
_BUILD = Operation("build the index of vectors, for each")
_BYTES = Operation("size of the index of vectors, for each", unit="KB")

_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id)
SELECT 'thr_vector' || i, :tenant_id, 'nova' FROM generate_series(:before::int, :size::int - 1) AS i
"""
_TURNS = """
INSERT INTO turns (id, tenant_id, thread_id, agent_id)
SELECT 'turn_vector' || i, :tenant_id, 'thr_vector' || i, 'nova'
  FROM generate_series(:before::int, :size::int - 1) AS i
"""
_MESSAGES = """
INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, kind, role, content)
SELECT 'msg_vector' || i, :tenant_id, 'thr_vector' || i, 'turn_vector' || i, 0, 'query', 'user', '[]'
  FROM generate_series(:before::int, :size::int - 1) AS i
"""
# Every message has common words, one that a hundred of them have, and one of its own.
_TEXTS = """
INSERT INTO message_texts (message_id, tenant_id, agent_id, thread_id, role, content, said_at)
SELECT 'msg_vector' || i, :tenant_id, 'nova', 'thr_vector' || i, 'user',
       'when does order number' || i || ' leave for town' || i / 100 || ' please', now()
  FROM generate_series(:before::int, :size::int - 1) AS i
"""
# The sum of two of these: a vector of its own for each message, in clusters as those of conversations are.
_PARTS = """
CREATE TABLE growth_parts AS
SELECT n, (SELECT array_agg(random() - 0.5 ORDER BY i) FROM generate_series(1, 384) AS i WHERE n >= 0)::vector AS part
  FROM generate_series(0, 1999) AS n
"""
_VECTORS = """
INSERT INTO embeddings (id, tenant_id, agent_id, thread_id, message_id, said_at, model, dimensions, embedding)
SELECT 'emb_vector' || i, :tenant_id, 'nova', 'thr_vector' || i, 'msg_vector' || i, now(), 'growth', 384,
       a.part + b.part
  FROM generate_series(:before::int, :size::int - 1) AS i
  JOIN growth_parts a ON a.n = i % 2000
  JOIN growth_parts b ON b.n = (i / 2000 + i * 7) % 2000
"""
_DEFINITION = "SELECT indexdef FROM pg_indexes WHERE indexname = :name"


async def measure_vectors(ground: Ground, sizes: Sequence[int]) -> AsyncGenerator[Cost]:
    """Make as many messages with their words and vectors."""
    before, chance = 0, random.Random(1)
    definition = await ground.database.fetchval(_DEFINITION, name=_INDEX)
    await ground.database.execute(_PARTS)
    for size in sizes:
        # An index that is built at once takes a tenth of the time of one that grows.
        await ground.database.execute(f"DROP INDEX {_INDEX}")
        await ground.write(
            {
                "threads": _THREADS, "turns": _TURNS, "messages": _MESSAGES, "message_texts": _TEXTS,
                "embeddings": _VECTORS,
            },
            tenant_id=ground.tenant_id, before=before, size=size,
        )  # fmt: skip
        async with ground.database.transaction() as connection:
            await connection.execute("SET LOCAL maintenance_work_mem = '3GB'")
            began_s = time.perf_counter()
            await connection.execute(definition)
            yield Cost.of(_BUILD, size, [(time.perf_counter() - began_s) / size])
            size_kb = await connection.fetchval(f"SELECT pg_relation_size('{_INDEX}')") / size / 1000
            yield Cost(_BYTES, size, size_kb, size_kb)
        before = size
        yield Cost.of(_SEARCH, size, await repeated(lambda size=size: _search(ground, chance, size), ground.repeats))
        yield Cost.of(
            _WORDS, size, await repeated(lambda size=size: _search(ground, chance, size, meaning=False), ground.repeats)
        )
        yield Cost.of(_SAVE, size, await repeated(lambda size=size: _save(ground, chance, size), ground.repeats))


def _vector(chance: random.Random) -> list[float]:
    return [chance.random() - 0.5 for _ in range(_DIMENSIONS)]


async def _search(ground: Ground, chance: random.Random, size: int, *, meaning: bool = True) -> float:
    text = f"order number{chance.randrange(size)} town{chance.randrange(max(size // 100, 1))}"
    vector = _vector(chance) if meaning else None
    began_s = time.perf_counter()
    async with ground.database.transaction() as transaction:
        hits = await search_messages(
            transaction, MessageFilter(ground.tenant_id, "nova"), text, vector=vector,
            model=_MODEL if meaning else None, limit=10,
        )  # fmt: skip
    took_s = time.perf_counter() - began_s
    assert hits, f"no hits for {text!r}"
    return took_s


async def _save(ground: Ground, chance: random.Random, size: int) -> float:
    """Replace the vectors of two messages: the deletion is not measured."""
    numbers = chance.sample(range(size), _NEW)
    messages = [f"msg_vector{number}" for number in numbers]
    async with ground.database.connection() as connection:
        await connection.execute("DELETE FROM embeddings WHERE message_id = ANY(:messages::text[])", messages=messages)
        now = await connection.fetchval("SELECT now()")
        embedded = [
            EmbeddedMessage(
                MessageText(ground.tenant_id, "nova", f"thr_vector{number}", f"msg_vector{number}", "", now),
                _vector(chance),
            )
            for number in numbers
        ]
        began_s = time.perf_counter()
        await save_embeddings(connection, embedded, model=_MODEL)
        return time.perf_counter() - began_s
