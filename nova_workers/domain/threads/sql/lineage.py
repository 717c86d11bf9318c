"""The turns and messages of a thread, including those of the threads that it was forked from.

The turns of one thread form a chain, since each becomes the head when it ends. So a lineage is a few segments, each
"the turns of a thread up to a depth", and a page is read from the index on ``(thread_id, depth)`` without walking turn
by turn.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from nova_workers.base.errors import InvalidInput, NotFound
from nova_workers.contracts.http.wire import MessageView, TurnView
from nova_workers.contracts.refusals import about_tools
from nova_workers.ledger.database import Connection, Row

# The thread itself without a bound, then each thread that it descends from, up to the fork.
_SEGMENTS = """
WITH RECURSIVE segments AS (
    SELECT t.id AS thread_id, t.forked_from_turn_id, 2147483647 AS depth_to
      FROM threads t
     WHERE t.tenant_id = :tenant_id AND t.id = :thread_id
    UNION ALL
    SELECT p.id, p.forked_from_turn_id, LEAST(u.depth, s.depth_to)
      FROM segments s
      JOIN turns u ON u.id = s.forked_from_turn_id
      JOIN threads p ON p.id = u.thread_id
)
"""

# Of an ended run its row of usage; of an open one, what its committed steps have used.
_SPAWNED_USAGE = """
SELECT input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_usd
  FROM usage WHERE run_id = c.spawned_run_id
 UNION ALL
SELECT t.input_tokens, t.output_tokens, t.cache_read_tokens, t.cache_write_tokens, t.reasoning_tokens, t.cost_usd
  FROM runs r JOIN turns t ON t.id = r.turn_id WHERE r.id = c.spawned_run_id AND r.finished_at IS NULL
"""

_TURNS = f"""
{_SEGMENTS}
SELECT u.*, u.run_id IS NULL AND u.type = 'normal' AS imported,
       jsonb_build_object('input_tokens', u.input_tokens, 'output_tokens', u.output_tokens,
                          'cache_read_tokens', u.cache_read_tokens, 'cache_write_tokens', u.cache_write_tokens,
                          'reasoning_tokens', u.reasoning_tokens, 'cost_usd', u.cost_usd::float8) AS usage,
       CASE WHEN u.error_kind IS NOT NULL THEN
           jsonb_build_object('kind', u.error_kind, 'message', COALESCE(u.error_message, ''), 'retryable', false)
       END AS error,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                   'id', c.call_id, 'tool_name', c.tool_name, 'params', c.params, 'status', c.status,
                   'result', c.result, 'error', c.error, 'step', c.step, 'spawned_run_id', c.spawned_run_id,
                   'spawned_usage', CASE WHEN s.input_tokens IS NOT NULL THEN jsonb_build_object(
                       'input_tokens', s.input_tokens, 'output_tokens', s.output_tokens,
                       'cache_read_tokens', s.cache_read_tokens, 'cache_write_tokens', s.cache_write_tokens,
                       'reasoning_tokens', s.reasoning_tokens, 'cost_usd', s.cost_usd::float8) END,
                   'started_at', c.started_at, 'completed_at', c.completed_at) ORDER BY c.sequence), '[]')
          FROM tool_calls c LEFT JOIN LATERAL ({_SPAWNED_USAGE}) s ON true
         WHERE c.turn_id = u.id) AS tool_calls
  FROM segments s
 CROSS JOIN LATERAL (
        SELECT * FROM turns
         WHERE thread_id = s.thread_id AND depth <= LEAST(s.depth_to, :bound)
         ORDER BY depth DESC
         LIMIT :limit) u
 ORDER BY u.depth DESC
 LIMIT :limit
"""

_TURN_PLACES = f"""
{_SEGMENTS}
SELECT u.id, u.depth
  FROM segments s
 CROSS JOIN LATERAL (
        SELECT id, depth FROM turns
         WHERE thread_id = s.thread_id AND depth <= LEAST(s.depth_to, :bound)
         ORDER BY depth DESC
         LIMIT :limit) u
 ORDER BY u.depth DESC
 LIMIT :limit
"""

_TURN_PLACES_UP = f"""
{_SEGMENTS}
SELECT u.id, u.depth
  FROM segments s
 CROSS JOIN LATERAL (
        SELECT id, depth FROM turns
         WHERE thread_id = s.thread_id AND depth <= s.depth_to AND depth >= :bound
         ORDER BY depth
         LIMIT :limit) u
 ORDER BY u.depth
 LIMIT :limit
"""

# Messages after a depth and seq. The page's turns are limited before their messages are read: each has at least one
# message, so the cursor's turn and `limit` more are enough.
_MESSAGES = f"""
{_SEGMENTS}, page AS (
    SELECT u.id, u.depth
      FROM segments s
     CROSS JOIN LATERAL (
            SELECT id, depth FROM turns
             WHERE thread_id = s.thread_id AND depth <= LEAST(s.depth_to, :to_depth) AND depth >= :depth
             ORDER BY depth
             LIMIT :limit + 1) u
     ORDER BY u.depth
     LIMIT :limit + 1
)
SELECT m.id, m.turn_id, m.thread_id, m.kind, m.role, m.content, m.created_at, m.seq, p.depth
  FROM page p JOIN messages m ON m.turn_id = p.id
 WHERE (p.depth, m.seq) > (:depth, :seq)
 ORDER BY p.depth, m.seq
 LIMIT :limit
"""

_PLACE = f"""
{_SEGMENTS}
SELECT u.depth, m.seq
  FROM messages m
  JOIN turns u ON u.id = m.turn_id
  JOIN segments s ON s.thread_id = u.thread_id AND u.depth <= s.depth_to
 WHERE m.id = :message_id
"""

# The row is locked while it is read, so that a note which a running turn adds meanwhile is kept or returned.
_RESTORE = f"""
{_SEGMENTS}, turn AS (
    SELECT u.id, u.refused_blocks
      FROM turns u JOIN segments s ON s.thread_id = u.thread_id AND u.depth <= s.depth_to
     WHERE u.id = :turn_id
       FOR UPDATE OF u
), restored AS (
    UPDATE turns t SET refused_blocks = NULL FROM turn WHERE t.id = turn.id AND turn.refused_blocks IS NOT NULL
)
SELECT refused_blocks FROM turn
"""

_TOP = 2_147_483_647


async def list_turns(
    connection: Connection, tenant_id: str, thread_id: str, *, below_depth: int | None, limit: int
) -> list[TurnView]:
    """Return the turns of a conversation, newest first, from below a depth, including a running one."""
    bound = _TOP if below_depth is None else below_depth - 1
    return [
        _turn(row)
        for row in await connection.fetch(_TURNS, tenant_id=tenant_id, thread_id=thread_id, bound=bound, limit=limit)
    ]


class TurnPlace(NamedTuple):
    """A turn, and how many precede it."""

    id: str
    depth: int


async def list_turn_places(
    connection: Connection, tenant_id: str, thread_id: str, *, below_depth: int | None, limit: int
) -> list[TurnPlace]:
    """Return the places of the turns that `list_turns` would return."""
    bound = _TOP if below_depth is None else below_depth - 1
    rows = await connection.fetch(_TURN_PLACES, tenant_id=tenant_id, thread_id=thread_id, bound=bound, limit=limit)
    return [TurnPlace(**row) for row in rows]


async def list_turn_places_upwards(
    connection: Connection, tenant_id: str, thread_id: str, *, from_depth: int, limit: int
) -> list[TurnPlace]:
    """Return the places of the turns of a conversation from a depth on, oldest first."""
    rows = await connection.fetch(
        _TURN_PLACES_UP, tenant_id=tenant_id, thread_id=thread_id, bound=from_depth, limit=limit
    )
    return [TurnPlace(**row) for row in rows]


async def list_messages(
    connection: Connection,
    tenant_id: str,
    thread_id: str,
    *,
    after: tuple[int, int] | None,
    limit: int,
    from_depth: int = 0,
    to_depth: int | None = None,
) -> list[tuple[MessageView, tuple[int, int]]]:
    """Return the messages of a conversation, oldest first, each with its position (the turn's depth, its seq).

    Committed messages of a running turn come last. `from_depth` and `to_depth` are those of the first and the last turn
    to read.
    """
    depth, seq = max(after or (0, -1), (from_depth, -1))
    rows = await connection.fetch(
        _MESSAGES,
        tenant_id=tenant_id,
        thread_id=thread_id,
        depth=depth,
        seq=seq,
        to_depth=_TOP if to_depth is None else to_depth,
        limit=limit,
    )
    return [(MessageView(**row), (row["depth"], row["seq"])) for row in rows]


async def place_of_message(connection: Connection, tenant_id: str, thread_id: str, message_id: str) -> tuple[int, int]:
    """Return the position of a message in a conversation, as `list_messages` has it.

    Raises:
        InvalidInput: The conversation has no such message.
    """
    row = await connection.fetchrow(_PLACE, tenant_id=tenant_id, thread_id=thread_id, message_id=message_id)
    if row is None:
        raise InvalidInput(f"Thread {thread_id!r} has no message {message_id!r}.", field="after")
    return row["depth"], row["seq"]


async def restore_content(connection: Connection, tenant_id: str, thread_id: str, turn_id: str) -> list[str]:
    """Remove the notes that replace content since a turn: the thread's next turn sends the content again.

    Returns:
        The notes; none if there were none.

    Raises:
        NotFound: The conversation has no such turn.
    """
    row = await connection.fetchrow(_RESTORE, tenant_id=tenant_id, thread_id=thread_id, turn_id=turn_id)
    if row is None:
        text = f"There is no turn {turn_id!r} in the history of thread {thread_id!r}."
        raise NotFound(text, kind="turn", id=turn_id, thread_id=thread_id)
    return [note for note in (row["refused_blocks"] or {}).values() if not about_tools(note)]


def _turn(row: Row) -> TurnView:
    left_out: Collection[str] = (row["refused_blocks"] or {}).values()
    return TurnView(
        **row,
        content_left_out=[note for note in left_out if not about_tools(note)],
        tools_left_out=[note for note in left_out if about_tools(note)],
    )
