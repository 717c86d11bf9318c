"""The search index of messages: their texts and vectors. Written by the embeddings effect, read by `messages`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nova_workers.base.ids import new_id
from nova_workers.ledger.database import Connection

MAX_WORD_CHARS: Final = 32_000
"""About 5,000 words, as in a long report. The index entry stays far below Postgres' limit of 1 MB."""

MAX_VECTOR_CHARS: Final = 16_000
"""About 4,000 tokens: half the limit of common servers, and eight times that of the local model."""


@dataclass(frozen=True, slots=True)
class MessageText:
    """The text of a message that has no vector yet."""

    tenant_id: str
    agent_id: str
    thread_id: str
    message_id: str
    text: str
    said_at: datetime


@dataclass(frozen=True, slots=True)
class EmbeddedMessage:
    """A message and its vector."""

    message: MessageText
    vector: Sequence[float]


# Indexes the user's messages and the final answer of each run's turn. Left out: text between tool calls and tool
# results, which would crowd out the rest, and the standard prompt of a run on a task. The text stays inside the server.
# Repeating the statement changes nothing.
_OF_RUNS = """
unnest(:tenant_ids::text[], :run_ids::text[]) AS run(tenant_id, id)
  JOIN turns t ON t.run_id = run.id AND t.tenant_id = run.tenant_id"""
_OF_TURNS = """
unnest(:turn_ids::text[]) AS turn(id)
  JOIN turns t ON t.id = turn.id AND t.tenant_id = :tenant_id"""


# Of imported turns, each answer that calls no tool: there is no final one where several follow each other. A subquery
# asks for the thread, in place of a join: a plan from a day with few threads would begin with all of them.
def _save_texts(turns: str) -> str:
    return f"""
WITH wanted AS (
    SELECT t.id AS turn_id, t.tenant_id, t.agent_id, t.thread_id, t.run_id
      FROM {turns}
     WHERE (SELECT h.deleted_at IS NULL AND NOT h.ephemeral FROM threads h WHERE h.id = t.thread_id)
), candidates AS (
    SELECT m.id, w.tenant_id, w.agent_id, w.thread_id, m.role, m.content, m.created_at
      FROM wanted w
      JOIN messages m ON m.turn_id = w.turn_id AND m.tenant_id = w.tenant_id
     WHERE m.kind = 'steering'
        OR (m.kind = 'query' AND NOT EXISTS (SELECT FROM runs r WHERE r.id = w.run_id AND r.source = 'task'))
        OR m.id = (SELECT last.id
                     FROM messages last
                    WHERE last.turn_id = w.turn_id AND last.kind = 'response'
                    ORDER BY last.seq DESC
                    LIMIT 1)
        OR (w.run_id IS NULL AND m.kind = 'response' AND NOT m.content @> '[{{"type": "tool_use"}}]')
), texts AS (
    SELECT c.id, c.tenant_id, c.agent_id, c.thread_id, c.role, c.created_at,
           left(btrim((SELECT string_agg(block->>'text', E'\\n')
                         FROM jsonb_array_elements(c.content) block
                        WHERE block->>'type' = 'text'), E' \\n\\t\\r'), :max_chars) AS text
      FROM candidates c
     WHERE NOT EXISTS (SELECT FROM message_texts x WHERE x.message_id = c.id)
)
INSERT INTO message_texts (message_id, tenant_id, agent_id, thread_id, role, content, said_at)
SELECT id, tenant_id, agent_id, thread_id, role, text, created_at FROM texts WHERE text <> ''
ON CONFLICT (message_id) DO NOTHING
"""


_SAVE_TEXTS = _save_texts(_OF_RUNS)
_SAVE_TEXTS_OF_TURNS = _save_texts(_OF_TURNS)


# Texts without a vector of the model, so that a retry does only what is left.
def _texts_to_embed(turns: str) -> str:
    return f"""
SELECT x.message_id, x.tenant_id, x.agent_id, x.thread_id, x.said_at, left(x.content, :max_chars) AS text
  FROM {turns}
  JOIN messages m ON m.turn_id = t.id
  JOIN message_texts x ON x.message_id = m.id
 WHERE NOT EXISTS (SELECT FROM embeddings e WHERE e.message_id = x.message_id AND e.model = :model)
 ORDER BY x.message_id
"""


_TEXTS_TO_EMBED = _texts_to_embed(_OF_RUNS)
_TEXTS_OF_TURNS_TO_EMBED = _texts_to_embed(_OF_TURNS)

# One statement for a batch. The vectors are sent as one flat array of 32-bit floats, `dimensions` each, which the
# driver encodes in binary: text would cost ten times the CPU and bytes. An existing vector is kept.
_SAVE = """
INSERT INTO embeddings (id, tenant_id, agent_id, thread_id, message_id, said_at, model, dimensions, embedding)
SELECT x.id, x.tenant_id, x.agent_id, x.thread_id, x.message_id, x.said_at, :model, :dimensions::int,
       ((:numbers::real[])[(x.place - 1) * :dimensions::int + 1 : x.place * :dimensions::int])::vector
  FROM unnest(:ids::text[], :tenant_ids::text[], :agent_ids::text[], :thread_ids::text[], :message_ids::text[],
              :said_ats::timestamptz[])
       WITH ORDINALITY AS x(id, tenant_id, agent_id, thread_id, message_id, said_at, place)
ON CONFLICT (message_id, model) DO NOTHING
"""

_FORGET = """
WITH vectors AS (DELETE FROM embeddings WHERE tenant_id = :tenant_id AND thread_id = :thread_id)
DELETE FROM message_texts WHERE tenant_id = :tenant_id AND thread_id = :thread_id
"""

# Deletes index rows of threads that were deleted while the rows were written. The share lock waits for a deletion in
# progress, and a later deletion waits for it, so one of the two sees the other's rows.
_FORGET_DELETED = """
WITH looked AS MATERIALIZED (
    SELECT id, deleted_at FROM threads WHERE id = ANY(:thread_ids::text[]) ORDER BY id FOR SHARE
), gone AS (
    SELECT id FROM looked WHERE deleted_at IS NOT NULL
), vectors AS (
    DELETE FROM embeddings e USING gone WHERE e.thread_id = gone.id
)
DELETE FROM message_texts x USING gone WHERE x.thread_id = gone.id
"""


async def save_texts(connection: Connection, runs: Sequence[tuple[str, str]], *, max_chars: int) -> int:
    """Index the messages of runs by words, and return how many. Repeating it changes nothing.

    Args:
        connection: One statement.
        runs: Tenant and run ids. Runs of deleted and of ephemeral threads are skipped.
        max_chars: Longer texts are truncated.
    """
    tag = await connection.execute(
        _SAVE_TEXTS, tenant_ids=[tenant for tenant, _ in runs], run_ids=[run for _, run in runs], max_chars=max_chars
    )
    return int(tag.rpartition(" ")[2])


async def save_texts_of_turns(
    connection: Connection, tenant_id: str, turn_ids: Sequence[str], *, max_chars: int
) -> int:
    """Index the messages of imported turns by words, as `save_texts` does, and return how many."""
    tag = await connection.execute(
        _SAVE_TEXTS_OF_TURNS, tenant_id=tenant_id, turn_ids=list(turn_ids), max_chars=max_chars
    )
    return int(tag.rpartition(" ")[2])


async def texts_to_embed(
    connection: Connection, runs: Sequence[tuple[str, str]], *, model: str, max_chars: int
) -> list[MessageText]:
    """Return the indexed texts of runs without a vector of this model. Call `save_texts` before.

    Args:
        connection: One statement.
        runs: Tenant and run ids.
        model: The embedding model.
        max_chars: Longer texts are truncated.
    """
    rows = await connection.fetch(
        _TEXTS_TO_EMBED,
        tenant_ids=[tenant for tenant, _ in runs],
        run_ids=[run for _, run in runs],
        model=model,
        max_chars=max_chars,
    )
    return [MessageText(**row) for row in rows]


async def texts_of_turns_to_embed(
    connection: Connection, tenant_id: str, turn_ids: Sequence[str], *, model: str, max_chars: int
) -> list[MessageText]:
    """Return the indexed texts of imported turns without a vector of this model."""
    rows = await connection.fetch(
        _TEXTS_OF_TURNS_TO_EMBED, tenant_id=tenant_id, turn_ids=list(turn_ids), model=model, max_chars=max_chars
    )
    return [MessageText(**row) for row in rows]


async def save_embeddings(connection: Connection, embedded: Sequence[EmbeddedMessage], *, model: str) -> None:
    """Store vectors, all of one width. Storing a message's vector again changes nothing."""
    if not embedded:
        return
    await connection.execute(
        _SAVE,
        ids=[new_id("emb") for _ in embedded],
        tenant_ids=[item.message.tenant_id for item in embedded],
        agent_ids=[item.message.agent_id for item in embedded],
        thread_ids=[item.message.thread_id for item in embedded],
        message_ids=[item.message.message_id for item in embedded],
        said_ats=[item.message.said_at for item in embedded],
        dimensions=len(embedded[0].vector),
        numbers=[number for item in embedded for number in item.vector],
        model=model,
    )


async def forget_thread(transaction: Connection, tenant_id: str, thread_id: str) -> None:
    """Delete a thread's index rows, in the transaction that deletes the thread, after its row was updated."""
    await transaction.execute(_FORGET, tenant_id=tenant_id, thread_id=thread_id)


async def forget_deleted(connection: Connection, thread_ids: Sequence[str]) -> None:
    """Delete index rows of threads that were deleted meanwhile. Writers call it after their commit."""
    await connection.execute(_FORGET_DELETED, thread_ids=sorted(set(thread_ids)))
