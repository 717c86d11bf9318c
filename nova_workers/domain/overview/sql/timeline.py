"""Reads a run's timeline: three statements, whatever the run's length. Texts are cut by Postgres."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from nova_workers.base.errors import existing
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.overview.timeline import (
    CUT_CHARS,
    MAX_ENTRIES,
    AttemptView,
    CutText,
    RunTimeline,
    TimelineCall,
    TimelineStep,
)
from nova_workers.contracts.http.wire import RunError, UsageView
from nova_workers.contracts.refusals import about_tools
from nova_workers.contracts.usage import TokenUsage
from nova_workers.ledger.database import Connection, Row

_Section = Literal["attempts", "waits", "compactions", "effects", "deliveries", "children"]

# The run's compactions stand directly above its turn, as in `runs.sql.replay`.
_COMPACTIONS = """
WITH RECURSIVE above AS (
    SELECT t.parent_turn_id AS id FROM turns t WHERE t.tenant_id = r.tenant_id AND t.id = r.turn_id
     UNION ALL
    SELECT t.parent_turn_id FROM above a JOIN turns t ON t.id = a.id AND t.type = 'compaction'
)
SELECT c.turn_id, c.trigger, c.model, c.tokens_before, c.tokens_after,
       c.created_at - c.duration_ms * interval '1 ms' AS started_at, c.created_at AS completed_at
  FROM above a JOIN compactions c ON c.turn_id = a.id
 WHERE c.created_at >= r.started_at
 ORDER BY c.created_at DESC
 LIMIT :most + 1
"""

# The newest entries of each list. `r` is the run; each list is read from an index on the run's id.
_SECTIONS: Final[Mapping[_Section, str]] = {
    "attempts": """
SELECT a.attempt, a.worker_id, a.started_at, a.ended_at, a.ended
  FROM run_attempts a WHERE a.run_id = r.id AND a.tenant_id = r.tenant_id
 ORDER BY a.attempt DESC LIMIT :most + 1
""",
    "waits": """
SELECT w.id, w.kind, w.status, w.tool_call_id, w.child_run_id, w.created_at, w.due_at, w.resolved_at,
       CASE WHEN x.asked IS NOT NULL THEN
           jsonb_build_object('text', left(x.asked, :chars), 'chars', char_length(x.asked)) END AS asked,
       w.request->>'agent_id' AS asked_agent_id, w.request->>'tool_name' AS tool_name, w.answer
  FROM run_waits w
 CROSS JOIN LATERAL (SELECT COALESCE(w.request->>'question', w.request->>'message', w.request->>'reason') AS asked) x
 WHERE w.run_id = r.id AND w.tenant_id = r.tenant_id
 ORDER BY w.id DESC LIMIT :most + 1
""",
    "compactions": _COMPACTIONS,
    "effects": """
SELECT e.kind, e.status, e.attempts, e.error, e.created_at, e.done_at
  FROM effects e WHERE e.run_id = r.id AND e.tenant_id = r.tenant_id
 ORDER BY e.position DESC LIMIT :most + 1
""",
    "deliveries": """
SELECT d.id, d.kind, d.target, d.status, d.attempts, d.response_status, d.error, d.created_at, d.delivered_at
  FROM deliveries d WHERE d.run_id = r.id AND d.tenant_id = r.tenant_id
 ORDER BY d.id DESC LIMIT :most + 1
""",
    "children": """
SELECT c.id, c.thread_id, c.agent_id, c.status, c.created_at, c.finished_at
  FROM runs c WHERE c.parent_run_id = r.id AND c.tenant_id = r.tenant_id
 ORDER BY c.id DESC LIMIT :most + 1
""",
}

_LISTS = ",\n".join(f"ARRAY(SELECT to_jsonb(s) FROM ({sql}) s) AS {section}" for section, sql in _SECTIONS.items())
_RUN = f"""
SELECT r.id, r.thread_id, r.agent_id, r.agent_version, r.turn_id, t.parent_turn_id, r.parent_run_id, r.trigger_id,
       r.merged_into, r.status, r.source, t.engine, COALESCE(t.model, r.model) AS model, t.provider, r.stop_reason,
       r.limit_reached, r.error_kind, r.error_message, r.error_retryable, r.created_at, r.start_at, r.started_at,
       r.first_token_at,
       r.cancel_requested_at, r.finished_at, r.attempt, r.worker_id, r.claimed_at,
       (SELECT count(*)::int FROM run_attempts a WHERE a.run_id = r.id AND a.ended = 'lost') AS losses,
       -- A turn counts a step when it ended; that of a run that waits has a response and calls.
       GREATEST(t.steps, (SELECT max(m.step) + 1 FROM messages m WHERE m.turn_id = r.turn_id), 0) AS steps,
       GREATEST(t.tool_call_count,
                (SELECT count(*) FROM tool_calls c WHERE c.turn_id = r.turn_id), 0)::int AS call_count,
       t.input_tokens, t.output_tokens,
       t.cache_read_tokens, t.cache_write_tokens, t.reasoning_tokens, t.cost_usd::float8 AS cost_usd,
       ARRAY(SELECT n.value FROM jsonb_each_text(t.refused_blocks) n) AS left_out,
       {_LISTS}
  FROM runs r LEFT JOIN turns t ON t.id = r.turn_id
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
"""

# A step's messages are its response, its tools' results and the messages that joined after it. Times and usage of all
# steps are read, since a step begins where the one before ended; texts only of the page's.
_STEPS = """
WITH step AS (
    SELECT m.step, min(m.created_at) FILTER (WHERE m.kind = 'response') AS responded_at,
           max(m.created_at) FILTER (WHERE m.kind IN ('response', 'tool_results')) AS closed_at,
           bool_or(m.kind = 'tool_results') AS has_results, (array_agg(m.event_id ORDER BY m.seq))[1] AS event_id,
           (array_agg(m.used) FILTER (WHERE m.used IS NOT NULL))[1] AS used
      FROM messages m
     WHERE m.turn_id = :turn_id AND m.tenant_id = :tenant_id AND m.step IS NOT NULL
     GROUP BY m.step
), timed AS (
    SELECT s.*, lag(s.closed_at) OVER w AS previous_at, lag(s.used) OVER w AS used_before
      FROM step s WINDOW w AS (ORDER BY s.step)
)
SELECT s.*, x.text, COALESCE(x.chars, 0)::int AS chars, c.requested_at, c.first_token_ms,
       ARRAY(SELECT jsonb_build_object('run_id', m.run_id, 'at', m.created_at, 'text', jsonb_build_object(
                        'text', left(y.text, :chars), 'chars', COALESCE(char_length(y.text), 0)))
               FROM messages m
              CROSS JOIN LATERAL (SELECT COALESCE(string_agg(b->>'text', E'\\n'), '') AS text
                                    FROM jsonb_array_elements(m.content) b WHERE b->>'type' = 'text') y
              WHERE m.turn_id = :turn_id AND m.step = s.step AND m.kind = 'steering' ORDER BY m.seq) AS steered
  FROM timed s
  LEFT JOIN model_calls c ON c.turn_id = :turn_id AND c.step = s.step
  LEFT JOIN LATERAL (
        SELECT left(string_agg(b->>'text', ''), :chars) AS text, sum(char_length(b->>'text')) AS chars
          FROM messages m CROSS JOIN jsonb_array_elements(m.content) b
         WHERE m.turn_id = :turn_id AND m.step = s.step AND m.kind = 'response' AND b->>'type' = 'text') x ON true
 WHERE s.step > :after
 ORDER BY s.step
 LIMIT :limit
"""

_CALLS = """
SELECT c.step, c.call_id AS id, c.tool_name, c.status, c.error, c.spawned_run_id, c.started_at, c.completed_at,
       jsonb_build_object('text', left(c.params::text, :chars), 'chars', char_length(c.params::text)) AS arguments,
       CASE WHEN c.result IS NOT NULL THEN
           jsonb_build_object('text', left(x.text, :chars), 'chars', char_length(x.text)) END AS result,
       COALESCE(x.others, 0)::int AS other_blocks
  FROM tool_calls c
  LEFT JOIN LATERAL (
        SELECT COALESCE(string_agg(b->>'text', E'\\n') FILTER (WHERE b->>'type' = 'text'), '') AS text,
               count(*) FILTER (WHERE b->>'type' <> 'text') AS others
          FROM jsonb_array_elements(c.result) b) x ON true
 WHERE c.turn_id = :turn_id AND c.tenant_id = :tenant_id AND c.step BETWEEN :first AND :last
 ORDER BY c.sequence
"""


async def load_timeline(
    connection: Connection, tenant_id: str, run_id: str, *, after_step: int | None, limit: int
) -> RunTimeline:
    """Return a run's timeline, with up to `limit` steps after the step `after_step`.

    Raises:
        NotFound: There is no such run.
    """
    row = existing(
        await connection.fetchrow(_RUN, tenant_id=tenant_id, run_id=run_id, most=MAX_ENTRIES, chars=CUT_CHARS),
        "run",
        run_id,
    )
    sections = {section: row[section] for section in _SECTIONS}
    lists = {section: list(reversed(entries[:MAX_ENTRIES])) for section, entries in sections.items()}
    attempts = _attempts(row, lists.pop("attempts"))
    steps = await _load_steps(
        connection, tenant_id, row, attempts, after=-1 if after_step is None else after_step, limit=limit
    )
    error = None
    if row["error_kind"] is not None:
        error = RunError(
            kind=row["error_kind"], message=row["error_message"] or "", retryable=bool(row["error_retryable"])
        )
    usage = _usage(row)
    return RunTimeline.model_validate(
        {name: row[name] for name in RunTimeline.model_fields if name in row and name not in sections}
        | lists
        | {
            "run_id": row["id"],
            "error": error,
            "usage": None if usage is None else _view(usage),
            "content_left_out": [note for note in row["left_out"] if not about_tools(note)],
            "tools_left_out": [note for note in row["left_out"] if about_tools(note)],
            "step_count": row["steps"],
            "steps": steps,
            "attempts": attempts,
            "cut": [section for section, entries in sections.items() if len(entries) > MAX_ENTRIES],
        }
    )


async def _load_steps(
    connection: Connection, tenant_id: str, run: Row, attempts: Iterable[AttemptView], *, after: int, limit: int
) -> list[TimelineStep]:
    if run["turn_id"] is None:
        return []
    key = {"tenant_id": tenant_id, "turn_id": run["turn_id"], "chars": CUT_CHARS}
    rows = await connection.fetch(_STEPS, **key, after=after, limit=limit)
    if not rows:
        return []
    calls: defaultdict[int, list[TimelineCall]] = defaultdict(list)
    for call in await connection.fetch(_CALLS, **key, first=rows[0]["step"], last=rows[-1]["step"]):
        calls[call["step"]].append(TimelineCall(**call))
    claims = {attempt.attempt: attempt.started_at for attempt in attempts}
    return [_step(row, calls[row["step"]], claims, run) for row in rows]


def _step(row: Row, calls: list[TimelineCall], claims: Mapping[int, Any], run: Row) -> TimelineStep:
    closing = row["event_id"]
    attempt = None if closing is None else EventCursor.parse(closing).attempt
    before = [moment for moment in (row["previous_at"], claims.get(attempt or 0)) if moment is not None]
    closed = row["has_results"] or not calls
    return TimelineStep(
        index=row["step"],
        attempt=attempt,
        started_at=row["requested_at"] or max(before, default=run["started_at"]),
        first_token_ms=row["first_token_ms"],
        responded_at=row["responded_at"],
        completed_at=row["closed_at"] if closed else None,
        text=CutText(text=row["text"] or "", chars=row["chars"]),
        calls=calls,
        usage=_usage_of_step(row, run) if closed else None,
        steered=row["steered"],
    )


def _usage_of_step(row: Row, run: Row) -> UsageView | None:
    """Return a step's share of the turn's usage. The last step of a run has no count of its own: it has the rest."""
    if row["used"] is not None:
        used = TokenUsage(**row["used"])
    elif run["status"] in ENDED_RUNS and row["step"] == run["steps"] - 1:
        used = _usage(run) or TokenUsage()
    else:
        return None
    return _view(_less(used, TokenUsage() if row["used_before"] is None else TokenUsage(**row["used_before"])))


def _less(used: TokenUsage, before: TokenUsage) -> TokenUsage:
    known = used.cost_usd is not None and before.cost_usd is not None
    return TokenUsage(
        input_tokens=used.input_tokens - before.input_tokens,
        output_tokens=used.output_tokens - before.output_tokens,
        cache_read_tokens=used.cache_read_tokens - before.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens - before.cache_write_tokens,
        reasoning_tokens=used.reasoning_tokens - before.reasoning_tokens,
        cost_usd=(used.cost_usd or 0.0) - (before.cost_usd or 0.0) if known else None,
    )


def _usage(row: Row) -> TokenUsage | None:
    if row["input_tokens"] is None:
        return None
    return TokenUsage(
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        cache_read_tokens=row["cache_read_tokens"],
        cache_write_tokens=row["cache_write_tokens"],
        reasoning_tokens=row["reasoning_tokens"],
        cost_usd=row["cost_usd"],
    )


def _view(usage: TokenUsage) -> UsageView:
    return UsageView.model_validate(usage, from_attributes=True)


def _attempts(row: Row, recorded: list[Any]) -> list[AttemptView]:
    """Return the recorded attempts and the latest, which the run itself has while it runs and after it ended."""
    attempts = [AttemptView.model_validate(entry) for entry in recorded]
    if row["attempt"] == 0 or any(attempt.attempt == row["attempt"] for attempt in attempts):
        return attempts
    ended = row["status"] if row["status"] in ENDED_RUNS else None
    latest = AttemptView(
        attempt=row["attempt"],
        worker_id=row["worker_id"],
        started_at=row["claimed_at"],
        ended_at=row["finished_at"],
        ended=ended,
    )
    return [*attempts, latest]
