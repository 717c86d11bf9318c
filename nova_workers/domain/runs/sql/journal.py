"""Steps of a running turn, committed under the fence before the next model call. `resume` reads them back.

What the journal, the end of a run and a suspension write of a step are the same parts of their statements, and the same
rows. The parts refer to `mine`, the fenced run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from nova_workers.base.errors import Conflict, RunLost
from nova_workers.base.ids import new_id
from nova_workers.contracts.content import ContentBlock, JsonObject, Message, storable
from nova_workers.contracts.engine import StepRecord, ToolCall
from nova_workers.contracts.runs import TurnFacts
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.runs.sql.filters import IS_RUNNING
from nova_workers.domain.runs.sql.requests import REQUESTS, RecordedCall, request_values
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_messages

MESSAGE_COLUMNS = "id text, seq int, step int, kind text, role text, content jsonb, event_id text, used jsonb"
CALL_COLUMNS = (
    "id text, call_id text, step int, sequence int, tool_name text, params jsonb, status text, result jsonb, "
    "error text, started_at timestamptz, completed_at timestamptz"
)

_STEP_MESSAGES = insert_messages(
    f"mine, jsonb_to_recordset(:messages) AS x({MESSAGE_COLUMNS})",
    id="x.id",
    tenant_id="mine.tenant_id",
    thread_id="mine.thread_id",
    turn_id="mine.turn_id",
    seq="x.seq",
    step="x.step",
    kind="x.kind",
    role="x.role",
    content="x.content",
    event_id="x.event_id",
    used="x.used",
)
# A write whose reply was lost is repeated: existing messages are kept, existing calls are updated.
MESSAGES = f"""
messages_in AS (
    {_STEP_MESSAGES}
    ON CONFLICT (turn_id, seq) DO NOTHING
)
"""
CALLS = f"""
calls_in AS (
    INSERT INTO tool_calls (id, tenant_id, turn_id, call_id, step, sequence, tool_name, params, status, result,
                            error, started_at, completed_at)
    SELECT x.id, mine.tenant_id, mine.turn_id, x.call_id, x.step, x.sequence, x.tool_name, x.params, x.status,
           x.result, x.error, x.started_at, x.completed_at
      FROM mine, jsonb_to_recordset(:calls) AS x({CALL_COLUMNS})
    ON CONFLICT (turn_id, call_id) DO UPDATE
       SET status = EXCLUDED.status, result = EXCLUDED.result, error = EXCLUDED.error,
           started_at = COALESCE(EXCLUDED.started_at, tool_calls.started_at), completed_at = EXCLUDED.completed_at
)
"""

# 1 if no statement has committed this response's message yet, else 0. The statement that first commits the message
# counts its usage, so the usage is neither lost if the worker crashes between two statements nor counted twice.
# Materialized, it is looked up once and not at each use; a join with `mine` could be planned as a scan of the index.
UNCOUNTED = """
uncounted AS MATERIALIZED (
    SELECT (NOT EXISTS (SELECT 1 FROM messages m
                         WHERE m.turn_id = (SELECT turn_id FROM mine) AND m.seq = :seq))::int AS times
)
"""

# A response's usage is counted once. The model usage of its tools is known when the step ends. Before the first step, a
# failed attempt may have recorded the cost of a response that was cut. What was reserved for the calls ends with it.
ADD_USAGE = """
reserved_usd = NULL, reserved_tokens = NULL,
input_tokens = t.input_tokens + uncounted.times * :input_tokens + :tool_input_tokens,
output_tokens = t.output_tokens + uncounted.times * :output_tokens + :tool_output_tokens,
cache_read_tokens = t.cache_read_tokens + uncounted.times * :cache_read_tokens + :tool_cache_read_tokens,
cache_write_tokens = t.cache_write_tokens + uncounted.times * :cache_write_tokens + :tool_cache_write_tokens,
reasoning_tokens = t.reasoning_tokens + uncounted.times * :reasoning_tokens + :tool_reasoning_tokens,
context_tokens = COALESCE(
    NULLIF(:input_tokens::int + :output_tokens::int + :cache_read_tokens::int + :cache_write_tokens::int, 0),
    t.context_tokens),
cost_usd = :tool_cost_usd::float8::numeric + CASE
                WHEN uncounted.times = 0 THEN t.cost_usd
                WHEN t.steps = 0 AND t.cost_usd IS NULL THEN :cost_usd::float8::numeric
                ELSE t.cost_usd + :cost_usd::float8::numeric END
"""

# The configuration of the turn (`TurnFacts`). Null leaves a column unchanged.
FACTS_ROW = """
jsonb_to_record(:facts) AS f(role text, toolset_name text, tools_available jsonb, permissions_granted jsonb,
                             permissions_used jsonb, workspace_path text)
"""
FACTS = """
role = COALESCE(f.role, t.role), toolset_name = COALESCE(f.toolset_name, t.toolset_name),
tools_available = COALESCE(f.tools_available, t.tools_available),
permissions_granted = COALESCE(f.permissions_granted, t.permissions_granted),
permissions_used = COALESCE(f.permissions_used, t.permissions_used),
workspace_path = COALESCE(f.workspace_path, t.workspace_path)
"""


_FACT_NAMES = tuple(field.name for field in fields(TurnFacts))
_USAGE_NAMES = tuple(field.name for field in fields(TokenUsage))
_MOST_TOKENS = 500_000_000
"""The most tokens of one kind in one response. More are a provider's error, and the sum of four must fit the column."""

# The fenced run, locked: a journal write and a recovery of the same run wait for each other.
_MINE = f"""
mine AS (
    SELECT id, tenant_id, thread_id, turn_id
      FROM runs r
     WHERE id = :run_id AND fence = :fence AND {IS_RUNNING}
       FOR UPDATE
)
"""

_COMMIT_CALLS = f"""
WITH {_MINE}, {MESSAGES}, {CALLS}, {REQUESTS}, {UNCOUNTED}, turn AS (
    UPDATE turns t
       SET input_tokens = t.input_tokens + :input_tokens, output_tokens = t.output_tokens + :output_tokens,
           cache_read_tokens = t.cache_read_tokens + :cache_read_tokens,
           cache_write_tokens = t.cache_write_tokens + :cache_write_tokens,
           reasoning_tokens = t.reasoning_tokens + :reasoning_tokens,
           cost_usd = CASE WHEN t.steps = 0 AND t.cost_usd IS NULL THEN :cost_usd::float8::numeric
                           ELSE t.cost_usd + :cost_usd::float8::numeric END,
           model = COALESCE(:model, t.model), reserved_usd = NULL, reserved_tokens = NULL
      FROM mine, uncounted
     WHERE t.id = mine.turn_id AND uncounted.times = 1
)
SELECT id FROM mine
"""

# Idempotent: repeated after a lost reply, it writes the same.
_COMMIT_REFUSED = f"""
WITH {_MINE}, turn AS (
    UPDATE turns t
       SET refused_blocks = COALESCE(t.refused_blocks, '{{}}') || :refused
      FROM mine
     WHERE t.id = mine.turn_id
)
SELECT id FROM mine
"""

_COMMIT_RESULT = f"""
WITH {_MINE}, ended AS (
    UPDATE tool_calls c
       SET status = :status, result = :result, error = :error, started_at = COALESCE(:started_at, c.started_at),
           completed_at = :completed_at
      FROM mine
     WHERE c.turn_id = mine.turn_id AND c.call_id = :call_id
)
SELECT id FROM mine
"""

# The last statement of a transaction in which a tool call writes: it checks the fence, and records the call's result.
# FOR SHARE keeps the claim until the commit, and lets the calls of a step commit at the same time. It comes last, since
# a thread's row is locked before those of its runs. A call of a subagent is not in the journal.
_SEAL_CALL = f"""
WITH mine AS (
    SELECT id, turn_id FROM runs r WHERE id = :run_id AND fence = :fence AND {IS_RUNNING} FOR SHARE
), known AS (
    SELECT c.id, c.result FROM tool_calls c JOIN mine ON c.turn_id = mine.turn_id WHERE c.call_id = :call_id
       FOR UPDATE OF c
), ended AS (
    UPDATE tool_calls c
       SET status = 'completed', result = :result, started_at = COALESCE(c.started_at, now()), completed_at = now()
      FROM known
     WHERE c.id = known.id AND known.result IS NULL AND :result::jsonb IS NOT NULL
)
SELECT mine.id, known.id IS NOT NULL AS journalled, known.result FROM mine LEFT JOIN known ON true
"""

_STEERING_MESSAGES = insert_messages(
    "absorbed a, mine",
    id="'msg_' || substr(a.id, 5)",
    tenant_id="mine.tenant_id",
    thread_id="mine.thread_id",
    turn_id="mine.turn_id",
    run_id="a.id",
    seq=":steering_seq + (SELECT count(*) FROM joined) + row_number() OVER (ORDER BY a.seq) - 1",
    step=":step",
    kind="'steering'",
    role="'user'",
    content="a.content",
    event_id=":event_id",
)


def _committing_step(also: str = "") -> str:
    """Return the statement that commits a step.

    Merging steering messages is part of the commit, so such a message is either in the turn's journal or still queued.
    Repeated after a lost reply, it returns the messages that the first execution merged (`joined`), and `steps < :step
    + 1` counts the step once. They are looked for by the thread's id and not by a join: with a plan that was made while
    few runs were queued, that would read those of all threads.

    Args:
        also: Another part of the statement.
    """
    return f"""
WITH {_MINE}, {MESSAGES}, {CALLS}, {REQUESTS}, {UNCOUNTED}, turn AS (
    UPDATE turns t
       SET steps = :step + 1,
           tool_call_count = t.tool_call_count + jsonb_array_length(:calls),
           {ADD_USAGE},
           {FACTS},
           model = COALESCE(:model, t.model)
      FROM mine, uncounted, {FACTS_ROW}
     WHERE t.id = mine.turn_id AND t.steps < :step + 1
), absorbed AS (
    UPDATE runs s
       SET status = 'merged', merged_into = mine.id, finished_at = now(), final_event_id = '0-1'
      FROM mine
     WHERE :absorb AND s.thread_id = (SELECT thread_id FROM mine) AND s.status = 'queued' AND s.on_busy = 'steer'
       AND s.attempt = 0 AND s.cancel_requested_at IS NULL
    RETURNING s.id, s.seq, s.content
), joined AS (
    SELECT m.run_id AS id, m.seq::bigint AS seq, m.content
      FROM messages m, mine
     WHERE m.turn_id = mine.turn_id AND m.step = :step AND m.kind = 'steering'
), steering AS (
    {_STEERING_MESSAGES}
){also}
SELECT mine.id, a.id AS absorbed_id, a.content
  FROM mine
  LEFT JOIN (SELECT 0 AS part, * FROM joined UNION ALL SELECT 1, * FROM absorbed) a ON true
 ORDER BY a.part, a.seq
"""


_COMMIT_STEP = _committing_step()
# For a run that lost workers before. In the other statement this part would cost every step, although few runs have
# losses.
_COMMIT_STEP_AND_CLEAR = _committing_step(""", cleared AS (
    UPDATE runs r SET losses = 0 FROM mine WHERE r.id = mine.id
)""")


@dataclass(frozen=True, slots=True)
class Absorbed:
    """A steering message that was merged into the turn, and its former run."""

    run_id: str
    message: Message


async def commit_calls(
    connection: Connection,
    run_id: str,
    fence: int,
    step: StepRecord,
    *,
    seq: int,
    event_id: str,
    asked: RecordedCall | None = None,
) -> None:
    """Commit a response with its calls as pending, before the first call runs.

    Args:
        seq: Position of the response in the turn.
        event_id: Id of the live event that will close the step.
        asked: What the model was asked with; None records nothing.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    row = await connection.fetchval(
        _COMMIT_CALLS,
        run_id=run_id,
        fence=fence,
        messages=message_rows(step.messages[:1], step.index, seq, event_id),
        calls=call_rows(step),
        seq=seq,
        **usage_values(step.usage),
        model=step.model,
        **request_values(asked),
    )
    _require(row, run_id, fence)


async def commit_result(connection: Connection, run_id: str, fence: int, call: ToolCall) -> None:
    """Commit the result of one call, so that a crash during the other calls does not repeat it.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    row = await connection.fetchval(
        _COMMIT_RESULT,
        run_id=run_id,
        fence=fence,
        call_id=call.id,
        status=call.status,
        result=None if call.result is None else list(call.result),
        error=None if call.error is None else storable(call.error),
        started_at=call.started_at,
        completed_at=call.completed_at,
    )
    _require(row, run_id, fence)


async def seal_call(
    connection: Connection, run_id: str, fence: int, call_id: str | None, result: Sequence[ContentBlock] | None
) -> bool:
    """Complete the transaction of a tool call: nothing may follow but its commit.

    Args:
        call_id: The call; None if the engine does not pass it.
        result: To record; None if the result comes from outside.

    Returns:
        Whether the call is in the journal, so that the result is recorded with the commit.

    Raises:
        RunLost: The run is not this claim's any more.
        Conflict: An earlier try of the same call has committed its result.
    """
    row = await connection.fetchrow(
        _SEAL_CALL, run_id=run_id, fence=fence, call_id=call_id, result=None if result is None else list(result)
    )
    if row is None:
        _require(None, run_id, fence)
        return False
    if row["result"] is not None:
        raise Conflict(f"Tool call {call_id!r} of run {run_id!r} has a result already.", call_id=call_id)
    journalled: bool = row["journalled"]
    return journalled


async def commit_refused(connection: Connection, run_id: str, fence: int, refused: Mapping[str, str]) -> None:
    """Record which blocks the provider refused in the run's turn, as notes by fingerprint.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    row = await connection.fetchval(_COMMIT_REFUSED, run_id=run_id, fence=fence, refused=dict(refused))
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
    facts: TurnFacts,
    absorb: bool,
    clears: bool,
    asked: RecordedCall | None = None,
) -> tuple[Absorbed, ...]:
    """Commit a whole step, and merge queued steering messages into the turn.

    Args:
        seq: Position of the step's first message in the turn.
        event_id: Id of the live event that will close the step.
        used: Usage of the turn, including this step.
        facts: Configuration of the turn.
        absorb: Whether to merge steering messages.
        clears: Whether to set the losses of the run back to none.
        asked: What the model was asked with; None if an earlier statement recorded it.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    rows = await connection.fetch(
        _COMMIT_STEP_AND_CLEAR if clears else _COMMIT_STEP,
        run_id=run_id,
        fence=fence,
        messages=message_rows(step.messages, step.index, seq, event_id, used),
        calls=call_rows(step),
        step=step.index,
        seq=seq,
        **usage_values(step.usage),
        model=step.model,
        **usage_values(step.tool_usage, of="tool_"),
        facts=facts_values(facts),
        absorb=absorb,
        steering_seq=seq + len(step.messages),
        event_id=event_id,
        **request_values(asked),
    )
    _require(rows[0]["id"] if rows else None, run_id, fence)
    return tuple(
        Absorbed(row["absorbed_id"], Message(role="user", content=tuple(row["content"])))
        for row in rows
        if row["absorbed_id"] is not None
    )


def _require(found: object, run_id: str, fence: int) -> None:
    if found is None:
        raise RunLost(f"Run {run_id!r} is no longer held under fence {fence}; nothing was written.", run_id=run_id)


def facts_values(facts: TurnFacts | None) -> JsonObject:
    """Return the values of `FACTS_ROW`. Not `asdict`, which copies what is in them, at each end of a run."""
    return {} if facts is None else {name: getattr(facts, name) for name in _FACT_NAMES}


def message_rows(
    messages: Sequence[Message], step: int, seq: int, event_id: str | None, used: TokenUsage | None = None
) -> list[JsonObject]:
    """Return a step's messages as rows of `MESSAGE_COLUMNS`. The last one has the turn's usage so far."""
    last = len(messages) - 1
    # Not by `asdict`, which copies each value, at each step.
    used_so_far = None if used is None else {name: getattr(used, name) for name in _USAGE_NAMES}
    return [
        {
            "id": new_id("msg"),
            "seq": seq + offset,
            "step": step,
            "kind": "response" if message.role == "assistant" else "tool_results",
            "role": message.role,
            "content": list(message.content),
            "event_id": event_id,
            "used": used_so_far if offset == last else None,
        }
        for offset, message in enumerate(messages)
    ]


def usage_values(usage: TokenUsage, *, of: str = "") -> dict[str, int | float | None]:
    """Return counts and cost by parameter name, with the prefix `of`."""
    counts = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    values: dict[str, int | float | None] = {
        f"{of}{name}": min(max(count, 0), _MOST_TOKENS) for name, count in counts.items()
    }
    return {**values, f"{of}cost_usd": usage.cost_usd}


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
