"""Past messages of one agent, as many as a measurement wants: words by Zipf's law, vectors in clusters."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from nova_workers.domain.search.sql.embeddings import EmbeddedMessage, MessageText
from nova_workers.domain.search.sql.messages import INDEXED_DIMENSIONS
from nova_workers.ledger.database import Connection

TENANT_ID: Final = "ten_bench"
AGENT_ID: Final = "nova"
MODEL: Final = "bench"

_VOCABULARY = 30_000
_COMMON = 20
"""As many words are in a large part of all messages."""
_RARE = slice(2_000, 20_000)
_CHUNK = 5_000
_THREAD_MESSAGES = 50
_TOPICS = 500
_PARTS = 2_000

# An index that is built at once takes a tenth of the time of one that grows.
_COSTLY_INDEXES = """
SELECT indexname AS name, indexdef AS definition FROM pg_indexes
 WHERE tablename IN ('message_texts', 'embeddings') AND indexdef ~ 'USING (gin|hnsw)'
"""

# No foreign key is checked in this session.
_TEXTS = """
INSERT INTO message_texts (message_id, tenant_id, agent_id, thread_id, role, content, said_at)
SELECT 'msg_' || lpad(place::text, 26, '0'), :tenant_id, :agent_id, 'thr_' || place / :of_thread::int, 'user', text,
       now()
  FROM unnest(:texts::text[]) WITH ORDINALITY said (text, n)
 CROSS JOIN LATERAL (SELECT :start::int + n - 1 AS place) placed
"""
_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id) SELECT DISTINCT thread_id, tenant_id, agent_id FROM message_texts
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

# A vector is the sum of its topic, its thread, and two parts of the message. Cosines are about 0.6 within a thread and
# 0.36 within a topic: of 15,000 sentences, the local model's vectors have 0.64 with the nearest, 0.50 with the tenth,
# 0.42 with the fiftieth. As there, directions are not equally important; they are as varied as with 90 that are.
_WEIGHTED = "random_normal() * power(i::float8, -0.375) * {scale}::float8"
_POOL = f"""
CREATE TABLE bench_parts AS
SELECT kind, n, (SELECT array_agg({_WEIGHTED.format(scale="scale")} ORDER BY i)
                   FROM generate_series(1, {INDEXED_DIMENSIONS}) i WHERE n >= 0)::vector AS part
  FROM (VALUES ('topic', {_TOPICS}, 0.6), ('thread', {_PARTS}, 0.5), ('message', {_PARTS}, 0.44)) k (kind, size, scale)
 CROSS JOIN LATERAL generate_series(0, size - 1) n
"""
_VECTOR_OF = f"""
  JOIN bench_parts topic ON topic.kind = 'topic' AND topic.n = m.thread % {_TOPICS}
  JOIN bench_parts thread ON thread.kind = 'thread' AND thread.n = m.thread % {_PARTS}
  JOIN bench_parts one ON one.kind = 'message' AND one.n = m.place % {_PARTS}
  JOIN bench_parts two ON two.kind = 'message' AND two.n = (m.place / {_PARTS} + m.place * 7) % {_PARTS}"""
_VECTORS = f"""
INSERT INTO embeddings (id, tenant_id, agent_id, thread_id, message_id, said_at, model, dimensions, embedding)
SELECT 'emb_' || m.message_id, m.tenant_id, m.agent_id, m.thread_id, m.message_id, m.said_at, :model,
       {INDEXED_DIMENSIONS}, topic.part + thread.part + one.part + two.part
  FROM (SELECT *, substr(message_id, 5)::int AS place, substr(thread_id, 5)::int AS thread FROM message_texts) m
  {_VECTOR_OF}
 WHERE m.place < :embedded::int
"""
# Near a message of the history, but none of it.
_NEW_VECTORS = f"""
SELECT (topic.part + thread.part + one.part)::real[]
  FROM (SELECT floor(random() * :threads::int)::int AS thread, floor(random() * {_PARTS})::int AS place
          FROM generate_series(1, :count::int)) m
  {_VECTOR_OF.rpartition("JOIN")[0]}
"""
_UNEMBEDDED = """
SELECT message_id, tenant_id, agent_id, thread_id, '' AS text, said_at FROM message_texts
 WHERE substr(message_id, 5)::int >= :embedded::int
 ORDER BY message_id
"""


@dataclass(frozen=True, slots=True)
class PastMessages:
    """Makes the messages, and what is searched in them.

    Attributes:
        size: How many messages have a vector.
        unembedded: How many more have none yet.
    """

    size: int
    unembedded: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    words: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        letters, lengths = "aeioubcdfghklmnprstvw", range(2, 11)
        chance = self.chance
        words = ["".join(chance.choices(letters, k=chance.choice(lengths))) for _ in range(_VOCABULARY)]
        object.__setattr__(self, "words", words)

    async def write(self, connection: Connection) -> None:
        """Fill the tables and build their indexes. The connection's statements may take as long as they need."""
        await connection.execute("INSERT INTO tenants (id, name) VALUES (:tenant_id, 'bench')", tenant_id=TENANT_ID)
        await connection.execute("SET session_replication_role = replica")
        indexes = await connection.fetch(_COSTLY_INDEXES)
        assert len(indexes) == 3, indexes
        for index in indexes:
            await connection.execute(f"DROP INDEX {index['name']}")
        weights = list(itertools.accumulate(1 / (place + 1) for place in range(len(self.words))))
        total = self.size + self.unembedded
        for start in range(0, total, _CHUNK):
            lengths = [self.chance.randint(8, 80) for _ in range(min(_CHUNK, total - start))]
            texts = [" ".join(self.chance.choices(self.words, cum_weights=weights, k=length)) for length in lengths]
            await connection.execute(
                _TEXTS, texts=texts, start=start, of_thread=_THREAD_MESSAGES, tenant_id=TENANT_ID, agent_id=AGENT_ID
            )
        for statement in (_THREADS, _TURNS, _MESSAGES, "SELECT setseed(0.5)", _POOL):
            await connection.execute(statement)
        await connection.execute("ANALYZE bench_parts")
        await connection.execute(_VECTORS, model=MODEL, embedded=self.size)
        await connection.execute("SET maintenance_work_mem = '3GB'")
        for index in indexes:
            await connection.execute(index["definition"])
        await connection.execute("RESET session_replication_role")
        for table in ("message_texts", "embeddings", "messages", "turns", "threads"):
            await connection.execute(f"VACUUM ANALYZE {table}")

    def rare_words(self) -> str:
        """Return a query of two rare words."""
        return " ".join(self.chance.sample(self.words[_RARE], 2))

    def common_words(self) -> str:
        """Return a sentence in which all words but one are common."""
        return " ".join([*self.chance.sample(self.words[:_COMMON], 6), self.chance.choice(self.words[_RARE.start :])])

    async def new_vectors(self, connection: Connection, count: int) -> list[list[float]]:
        """Return vectors of new messages, each on a past thread's subject."""
        threads = max(self.size // _THREAD_MESSAGES, 1)
        return [row[0] for row in await connection.fetch(_NEW_VECTORS, threads=threads, count=count)]

    async def new_messages(self, connection: Connection) -> list[EmbeddedMessage]:
        """Return the messages that have no vector yet, with one for each."""
        rows = await connection.fetch(_UNEMBEDDED, embedded=self.size)
        vectors = await self.new_vectors(connection, len(rows))
        return [EmbeddedMessage(MessageText(**row), vector) for row, vector in zip(rows, vectors, strict=True)]
