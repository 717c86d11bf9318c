"""What the journal, the end of a run and a suspension write of a step: parts of their statements, and the rows.

The parts refer to `mine`, the fenced run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime

from nova_workers.base.ids import new_id
from nova_workers.contracts.content import JsonObject, Message
from nova_workers.contracts.engine import StepRecord
from nova_workers.contracts.runs import TurnFacts
from nova_workers.contracts.usage import TokenUsage
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
_MOST_TOKENS = 500_000_000
"""The limit of one kind in one response. A higher count is a provider's error, and the sum of four must fit the
columns."""


def facts_values(facts: TurnFacts | None) -> JsonObject:
    """Return the values of `FACTS_ROW`. Not `asdict`, which copies what is in them, at each end of a run."""
    return {} if facts is None else {name: getattr(facts, name) for name in _FACT_NAMES}


def message_rows(
    messages: Sequence[Message], step: int, seq: int, event_id: str | None, used: TokenUsage | None = None
) -> list[JsonObject]:
    """Return a step's messages as rows of `MESSAGE_COLUMNS`. The last one has the turn's usage so far."""
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
