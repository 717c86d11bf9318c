"""Steps of a running turn, committed under the fence before the next model call. `resume` reads them back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from nova_workers.contracts.content import JsonObject, Message, storable
from nova_workers.contracts.engine import StepRecord, ToolCall
from nova_workers.contracts.usage import TokenUsage
from nova_workers.errors import RunLost
from nova_workers.ids import new_id
from nova_workers.ledger.database import Connection

__all__ = [
    "CALL_COLUMNS",
    "MESSAGE_COLUMNS",
    "MINE",
    "UNCOUNTED",
    "Absorbed",
    "call_rows",
    "commit_calls",
    "commit_result",
    "commit_step",
    "message_rows",
    "usage_columns",
]

# $1 run, $2 fence. The row lock makes the journal and a recovery of the same run wait for each other.
MINE = """
mine AS (
    SELECT id, tenant_id, thread_id, turn_id
      FROM runs
     WHERE id = $1 AND fence = $2 AND status = 'running'
       FOR UPDATE
)
"""

MESSAGE_COLUMNS = "id text, seq int, step int, kind text, role text, content jsonb, event_id text, used jsonb"
CALL_COLUMNS = (
    "id text, call_id text, step int, sequence int, tool_name text, params jsonb, status text, result jsonb, "
    "error text, started_at timestamptz, completed_at timestamptz"
)

# A statement whose reply was lost is sent again: rows that are there already are left, or brought up to date.
MESSAGES = f"""
messages_in AS (
    INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, step, kind, role, content, event_id, used)
    SELECT x.id, mine.tenant_id, mine.thread_id, mine.turn_id, x.seq, x.step, x.kind, x.role, x.content, x.event_id,
           x.used
      FROM mine, jsonb_to_recordset($3) AS x({MESSAGE_COLUMNS})
    ON CONFLICT (turn_id, seq) DO NOTHING
)
"""
CALLS = f"""
calls_in AS (
    INSERT INTO tool_calls (id, tenant_id, turn_id, call_id, step, sequence, tool_name, params, status, result,
                            error, started_at, completed_at)
    SELECT x.id, mine.tenant_id, mine.turn_id, x.call_id, x.step, x.sequence, x.tool_name, x.params, x.status,
           x.result, x.error, x.started_at, x.completed_at
      FROM mine, jsonb_to_recordset($4) AS x({CALL_COLUMNS})
    ON CONFLICT (turn_id, call_id) DO UPDATE
       SET status = EXCLUDED.status, result = EXCLUDED.result, error = EXCLUDED.error,
           started_at = COALESCE(EXCLUDED.started_at, tool_calls.started_at), completed_at = EXCLUDED.completed_at
)
"""

# A response's usage is counted by the statement that first commits its message, whichever that is: 1 in that one, 0
# in all later ones. So it is neither lost with a worker that dies between two of them, nor counted again.
UNCOUNTED = """
uncounted AS (
    SELECT (NOT EXISTS (SELECT 1 FROM messages m, mine WHERE m.turn_id = mine.turn_id AND m.seq = {seq}))::int AS times
)
"""

# $5 seq of the response, $6.. its usage, $12 model.
_COMMIT_CALLS = f"""
WITH {MINE}, {MESSAGES}, {CALLS}, {UNCOUNTED.format(seq="$5")}, turn AS (
    UPDATE turns t
       SET input_tokens = t.input_tokens + $6, output_tokens = t.output_tokens + $7,
           cache_read_tokens = t.cache_read_tokens + $8, cache_write_tokens = t.cache_write_tokens + $9,
           reasoning_tokens = t.reasoning_tokens + $10,
           cost_usd = CASE WHEN t.steps = 0 THEN $11::float8::numeric ELSE t.cost_usd + $11::float8::numeric END,
           model = COALESCE($12, t.model)
      FROM mine, uncounted
     WHERE t.id = mine.turn_id AND uncounted.times = 1
)
SELECT id FROM mine
"""

_COMMIT_RESULT = f"""
WITH {MINE}, ended AS (
    UPDATE tool_calls c
       SET status = $4, result = $5, error = $6, started_at = COALESCE($7, c.started_at), completed_at = $8
      FROM mine
     WHERE c.turn_id = mine.turn_id AND c.call_id = $3
)
SELECT id FROM mine
"""

# $5 step index, $6.. usage of the step, $12 model, $13 seq of the first steering message, $14 whether to absorb.
# Absorbing is part of the commit: a steering message is in the turn's journal, or still in line; never both, never
# neither. Sent again after a lost reply, it answers with what joined the first time (`joined`), and `steps < $5 + 1`
# counts the step once. $16 seq of the response, $17.. what the step's tools used of models: known only now.
_COMMIT_STEP = f"""
WITH {MINE}, {MESSAGES}, {CALLS}, {UNCOUNTED.format(seq="$16")}, turn AS (
    UPDATE turns t
       SET steps = $5 + 1,
           tool_call_count = t.tool_call_count + jsonb_array_length($4),
           input_tokens = t.input_tokens + uncounted.times * $6 + $17,
           output_tokens = t.output_tokens + uncounted.times * $7 + $18,
           cache_read_tokens = t.cache_read_tokens + uncounted.times * $8 + $19,
           cache_write_tokens = t.cache_write_tokens + uncounted.times * $9 + $20,
           reasoning_tokens = t.reasoning_tokens + uncounted.times * $10 + $21,
           context_tokens = COALESCE(NULLIF($6::int + $7::int + $8::int + $9::int, 0), t.context_tokens),
           cost_usd = $22::float8::numeric + CASE
                           WHEN uncounted.times = 0 THEN t.cost_usd
                           WHEN t.steps = 0 THEN $11::float8::numeric ELSE t.cost_usd + $11::float8::numeric END,
           model = COALESCE($12, t.model)
      FROM mine, uncounted
     WHERE t.id = mine.turn_id AND t.steps < $5 + 1
), absorbed AS (
    UPDATE runs s
       SET status = 'merged', merged_into = mine.id, finished_at = now(), final_event_id = '0-1'
      FROM mine
     WHERE $14 AND s.thread_id = mine.thread_id AND s.status = 'queued' AND s.on_busy = 'steer'
       AND s.attempt = 0 AND s.cancel_requested_at IS NULL
    RETURNING s.id, s.seq, s.content
), joined AS (
    SELECT m.run_id AS id, m.seq::bigint AS seq, m.content
      FROM messages m, mine
     WHERE m.turn_id = mine.turn_id AND m.step = $5 AND m.kind = 'steering'
), steering AS (
    INSERT INTO messages (id, tenant_id, thread_id, turn_id, run_id, seq, step, kind, role, content, event_id)
    SELECT 'msg_' || substr(a.id, 5), mine.tenant_id, mine.thread_id, mine.turn_id, a.id,
           $13 + (SELECT count(*) FROM joined) + row_number() OVER (ORDER BY a.seq) - 1,
           $5, 'steering', 'user', a.content, $15
      FROM absorbed a, mine
)
SELECT mine.id, a.id AS absorbed_id, a.content
  FROM mine
  LEFT JOIN (SELECT 0 AS part, * FROM joined UNION ALL SELECT 1, * FROM absorbed) a ON true
 ORDER BY a.part, a.seq
"""


@dataclass(frozen=True, slots=True)
class Absorbed:
    """A steering message that joined the turn, and the run that it was."""

    run_id: str
    message: Message


async def commit_calls(
    connection: Connection, run_id: str, fence: int, step: StepRecord, *, seq: int, event_id: str
) -> None:
    """Commit a response with its calls pending, before the first of them runs.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    row = await connection.fetchval(
        _COMMIT_CALLS,
        run_id,
        fence,
        message_rows(step.messages[:1], step.index, seq, event_id),
        call_rows(step),
        seq,
        *usage_columns(step.usage),
        step.model,
    )
    _require(row, run_id, fence)


async def commit_result(connection: Connection, run_id: str, fence: int, call: ToolCall) -> None:
    """Commit the end of one call, so that a crash of its neighbours does not run it again.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    row = await connection.fetchval(
        _COMMIT_RESULT,
        run_id,
        fence,
        call.id,
        call.status,
        None if call.result is None else list(call.result),
        None if call.error is None else storable(call.error),
        call.started_at,
        call.completed_at,
    )
    _require(row, run_id, fence)


async def commit_step(
    connection: Connection,
    run_id: str,
    fence: int,
    step: StepRecord,
    *,
    seq: int,
    event_id: str,
    used: TokenUsage,
    absorb: bool,
) -> tuple[Absorbed, ...]:
    """Commit a whole step, and take the steering messages that wait into the turn.

    Args:
        seq: Place in the turn of the step's first message.
        event_id: Id of the live event that will close the step.
        used: What the turn has used, with this step.
        absorb: Whether steering messages may join here.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    rows = await connection.fetch(
        _COMMIT_STEP,
        run_id,
        fence,
        message_rows(step.messages, step.index, seq, event_id, used),
        call_rows(step),
        step.index,
        *usage_columns(step.usage),
        step.model,
        seq + len(step.messages),
        absorb,
        event_id,
        seq,
        *usage_columns(step.tool_usage),
    )
    _require(rows[0]["id"] if rows else None, run_id, fence)
    return tuple(
        Absorbed(row["absorbed_id"], Message(role="user", content=tuple(row["content"])))
        for row in rows
        if row["absorbed_id"] is not None
    )


def message_rows(
    messages: Sequence[Message], step: int, seq: int, event_id: str | None, used: TokenUsage | None = None
) -> list[JsonObject]:
    """Return a step's messages as rows of `MESSAGE_COLUMNS`. The last one has what the turn has used by then."""
    last = len(messages) - 1
    return [
        {
            "id": new_id("msg"),
            "seq": seq + offset,
            "step": step,
            "kind": "response" if message.role == "assistant" else "tool_results",
            "role": message.role,
            "content": list(message.content),
            "event_id": event_id,
            "used": asdict(used) if used is not None and offset == last else None,
        }
        for offset, message in enumerate(messages)
    ]


def usage_columns(usage: TokenUsage) -> tuple[int | float | None, ...]:
    """Return counts and cost in the order in which statements bind them."""
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.cost_usd,
    )


def call_rows(step: StepRecord) -> list[JsonObject]:
    """Return a step's calls as rows of `CALL_COLUMNS`."""
    return [
        {
            "id": new_id("tlc"),
            "call_id": call.id,
            "step": call.step,
            "sequence": call.sequence,
            "tool_name": call.tool_name,
            "params": call.params,
            "status": call.status,
            "result": None if call.result is None else list(call.result),
            "error": call.error,
            "started_at": _iso(call.started_at),
            "completed_at": _iso(call.completed_at),
        }
        for call in step.tool_calls
    ]


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _require(found: object, run_id: str, fence: int) -> None:
    if found is None:
        raise RunLost(f"Run {run_id!r} is no longer held under fence {fence}; nothing was written.", run_id=run_id)
