"""Vectors of messages: what is still to be embedded, their storage, and search by meaning."""

from collections.abc import Sequence
from dataclasses import dataclass

from nova_workers.ids import new_id
from nova_workers.ledger.database import Connection

__all__ = [
    "INDEXED_DIMENSIONS",
    "EmbeddedMessage",
    "MessageHit",
    "MessageText",
    "save_embeddings",
    "search_messages",
    "texts_to_embed",
]

INDEXED_DIMENSIONS = 384
"""Vectors of this width are in the HNSW index; others are searched row by row."""


@dataclass(frozen=True, slots=True)
class MessageText:
    """The text of a message that has no vector yet."""

    tenant_id: str
    agent_id: str
    thread_id: str
    message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class EmbeddedMessage:
    """A message and its vector."""

    message: MessageText
    vector: Sequence[float]


@dataclass(frozen=True, slots=True)
class MessageHit:
    """A message that is near to a query.

    Attributes:
        similarity: Cosine similarity, from -1 to 1; 1 is the same direction.
    """

    message_id: str
    thread_id: str
    agent_id: str
    similarity: float


# What is worth finding again of a run's turn: what the user said, and the answer. Not the narration between tool
# calls, nor their results: they would drown it. Messages that have their vector are left out, so a retry does only
# what is left. Per run: $1 tenant, $2 run. $3 model, $4 most characters of a text.
_TEXTS_TO_EMBED = """
WITH wanted AS (
    SELECT t.id AS turn_id, t.tenant_id, t.agent_id, t.thread_id
      FROM unnest($1::text[], $2::text[]) AS run(tenant_id, id)
      JOIN turns t ON t.run_id = run.id AND t.tenant_id = run.tenant_id
), candidates AS (
    SELECT m.id, w.tenant_id, w.agent_id, w.thread_id, m.content
      FROM wanted w
      JOIN messages m ON m.turn_id = w.turn_id AND m.tenant_id = w.tenant_id
     WHERE m.kind IN ('query', 'steering')
        OR m.id = (SELECT last.id
                     FROM messages last
                    WHERE last.turn_id = w.turn_id AND last.kind = 'response'
                    ORDER BY last.seq DESC
                    LIMIT 1)
), texts AS (
    SELECT c.id, c.tenant_id, c.agent_id, c.thread_id,
           left(btrim((SELECT string_agg(block->>'text', E'\\n')
                         FROM jsonb_array_elements(c.content) block
                        WHERE block->>'type' = 'text'), E' \\n\\t\\r'), $4) AS text
      FROM candidates c
     WHERE NOT EXISTS (SELECT 1 FROM embeddings e WHERE e.message_id = c.id AND e.model = $3)
)
SELECT id, tenant_id, agent_id, thread_id, text FROM texts WHERE text <> '' ORDER BY id
"""

# One statement for a batch. The vectors travel as one flat array of 32-bit floats, $6 numbers each, which the
# driver writes in binary: text would cost ten times the CPU and the bytes. A message that has its vector keeps it.
_SAVE = """
INSERT INTO embeddings (id, tenant_id, agent_id, thread_id, message_id, model, dimensions, embedding)
SELECT x.id, x.tenant_id, x.agent_id, x.thread_id, x.message_id, $8, $6::int,
       (($7::real[])[(x.place - 1) * $6::int + 1 : x.place * $6::int])::vector
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
       WITH ORDINALITY AS x(id, tenant_id, agent_id, thread_id, message_id, place)
ON CONFLICT (message_id, model) DO NOTHING
"""

# Rows of other tenants are passed over while the index is walked, and the walk goes on until there are enough:
# see `search_messages`. $1 query, $2 tenant, $3 model, $4 agent or null, $5 most hits.
_SEARCH_INDEXED = """
SELECT e.message_id, e.thread_id, e.agent_id,
       1 - (e.embedding::vector(384) <=> $1::real[]::vector(384)) AS similarity
  FROM embeddings e
 WHERE e.dimensions = 384 AND e.tenant_id = $2 AND e.model = $3 AND ($4::text IS NULL OR e.agent_id = $4)
   AND EXISTS (SELECT 1 FROM threads t WHERE t.id = e.thread_id AND t.deleted_at IS NULL)
 ORDER BY e.embedding::vector(384) <=> $1::real[]::vector(384)
 LIMIT $5
"""

_SEARCH_PLAIN = """
SELECT e.message_id, e.thread_id, e.agent_id, 1 - (e.embedding <=> $1::real[]::vector) AS similarity
  FROM embeddings e
 WHERE e.dimensions = cardinality($1::real[]) AND e.tenant_id = $2 AND e.model = $3
   AND ($4::text IS NULL OR e.agent_id = $4)
   AND EXISTS (SELECT 1 FROM threads t WHERE t.id = e.thread_id AND t.deleted_at IS NULL)
 ORDER BY e.embedding <=> $1::real[]::vector
 LIMIT $5
"""

# For this transaction only. Without it a walk of the index stops after `hnsw.ef_search` rows, whoever's they are.
_WALK_ON = "SELECT set_config('hnsw.iterative_scan', 'strict_order', true)"


async def texts_to_embed(
    connection: Connection, runs: Sequence[tuple[str, str]], *, model: str, max_chars: int
) -> list[MessageText]:
    """Return the texts of runs that have no vector of this model yet.

    Args:
        connection: One statement.
        runs: Tenant and run ids.
        model: The embedding model.
        max_chars: Longer texts are cut.
    """
    rows = await connection.fetch(
        _TEXTS_TO_EMBED, [tenant for tenant, _ in runs], [run for _, run in runs], model, max_chars
    )
    return [
        MessageText(
            tenant_id=row["tenant_id"],
            agent_id=row["agent_id"],
            thread_id=row["thread_id"],
            message_id=row["id"],
            text=row["text"],
        )
        for row in rows
    ]


async def save_embeddings(connection: Connection, embedded: Sequence[EmbeddedMessage], *, model: str) -> None:
    """Store vectors, all of one width. Storing a message's vector again changes nothing."""
    if not embedded:
        return
    await connection.execute(
        _SAVE,
        [new_id("emb") for _ in embedded],
        [item.message.tenant_id for item in embedded],
        [item.message.agent_id for item in embedded],
        [item.message.thread_id for item in embedded],
        [item.message.message_id for item in embedded],
        len(embedded[0].vector),
        [number for item in embedded for number in item.vector],
        model,
    )


async def search_messages(
    transaction: Connection,
    *,
    tenant_id: str,
    vector: Sequence[float],
    model: str,
    agent_id: str | None = None,
    limit: int = 10,
) -> list[MessageHit]:
    """Return the messages of a tenant that are nearest to a vector, nearest first. Deleted threads are left out.

    Args:
        transaction: A transaction, since a setting of the index walk is made for it alone.
        tenant_id: Whose messages.
        vector: The query, embedded by the same model.
        model: The embedding model.
        agent_id: Only this agent's conversations; all when left out.
        limit: Most hits.
    """
    indexed = len(vector) == INDEXED_DIMENSIONS
    if indexed:
        await transaction.execute(_WALK_ON)
    rows = await transaction.fetch(
        _SEARCH_INDEXED if indexed else _SEARCH_PLAIN, list(vector), tenant_id, model, agent_id, limit
    )
    return [
        MessageHit(
            message_id=row["message_id"],
            thread_id=row["thread_id"],
            agent_id=row["agent_id"],
            similarity=row["similarity"],
        )
        for row in rows
    ]
