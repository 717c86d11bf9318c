"""Reads a run's journal for the replay of its events."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from nova_workers.base.vocabulary import Limit
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.events import DeliveryTarget, EventCursor, StateChange
from nova_workers.contracts.state_changes import state_change
from nova_workers.contracts.steps import ToolCall
from nova_workers.contracts.thread_state import STATE_TOOL
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import HoldDetail, WaitRequest, wait_adapter
from nova_workers.ledger.database import Connection, Row

_RUN = """
SELECT r.id, r.thread_id, r.agent_id, r.status, r.attempt, r.turn_id, r.merged_into, r.stop_reason,
       r.limit_reached, r.result_text,
       r.error_kind, r.error_message, r.error_retryable, r.final_event_id, r.started_at, r.finished_at, r.parent_run_id,
       left(r.meta->>'channel', 64) AS channel, left(r.meta->>'to', 256) AS recipient, h.label,
       COALESCE(t.model, r.model) AS model,
       COALESCE(t.steps, 0) AS steps, CASE WHEN r.hold IS NOT NULL THEN r.hold_detail END AS hold, r.held_until,
       t.refused_blocks, t.input_tokens, t.output_tokens, t.cache_read_tokens, t.cache_write_tokens, t.reasoning_tokens,
       t.cost_usd::float8 AS cost_usd
  FROM runs r JOIN threads h ON h.id = r.thread_id LEFT JOIN turns t ON t.id = r.turn_id
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
"""

_MESSAGES = """
SELECT step, kind, content, run_id, event_id, used, created_at
  FROM messages WHERE turn_id = :turn_id AND step IS NOT NULL ORDER BY seq
"""

# Of arguments and results only those of changes of the state document, which are events.
_CALLS = f"""
SELECT c.call_id, c.step, c.sequence, c.tool_name, c.status, c.started_at, c.completed_at,
       CASE WHEN c.tool_name = '{STATE_TOOL}' THEN c.params END AS params,
       CASE WHEN c.tool_name = '{STATE_TOOL}' THEN c.result END AS result,
       EXISTS (SELECT 1 FROM run_waits w WHERE w.run_id = :run_id AND w.tool_call_id = c.call_id) AS waited
  FROM tool_calls c WHERE c.turn_id = :turn_id ORDER BY c.sequence
"""

# A run's compactions stand directly above its turn; one of an earlier run that left no turn is older than this run.
_COMPACTIONS = """
WITH RECURSIVE above AS (
    SELECT parent_turn_id AS id FROM turns WHERE id = :turn_id
     UNION ALL
    SELECT t.parent_turn_id FROM above a JOIN turns t ON t.id = a.id AND t.type = 'compaction'
)
SELECT c.tokens_before, c.tokens_after, c.created_at - c.duration_ms * interval '1 ms' AS began_at, c.created_at
  FROM above a JOIN compactions c ON c.turn_id = a.id
 WHERE c.created_at >= :started_at
 ORDER BY c.created_at
"""


_WAITS = """
SELECT w.tool_call_id, w.request, w.status = 'open' AS is_open, w.created_at
  FROM run_waits w JOIN runs r ON r.id = w.run_id
  JOIN tool_calls c ON c.turn_id = r.turn_id AND c.call_id = w.tool_call_id AND c.step = :step
 WHERE w.run_id = :run_id
 ORDER BY w.id
"""


@dataclass(frozen=True, slots=True)
class RecordedCompaction:
    """A compaction that the run made, between two steps or before the first."""

    tokens_before: int
    tokens_after: int
    began_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A tool call as it is stored."""

    call_id: str
    tool_name: str
    status: str
    started_at: datetime | None = None
    completed_at: datetime | None = None
    change: StateChange | None = None
    """What it changed of the state document."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A committed step.

    Attributes:
        closed_by: Id of the live event that closed it; None if that was the run's final event.
        steered_by: Runs whose messages were merged into the turn after it.
        used: The turn's usage so far. None for the last step, whose usage is the run's.
        said_at: When its response was committed.
        closed_at: When the whole step was committed.
        compactions: Compactions between the step before and this one, in order.
    """

    index: int
    closed_by: EventCursor | None
    text: str
    calls: tuple[RecordedCall, ...]
    steered_by: tuple[str, ...]
    used: TokenUsage | None = None
    said_at: datetime | None = None
    closed_at: datetime | None = None
    compactions: tuple[RecordedCompaction, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedWait:
    """What a call of the open step waits for, or waited for."""

    tool_call_id: str
    request: WaitRequest
    is_open: bool
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class RecordedResponse:
    """The committed response of a step whose calls have not all ended.

    Attributes:
        told_before: An id: the live events with its text have lower ones.
        is_closed: The run waited for a call of it, and so a live `step` event closed its text.
    """

    index: int
    told_before: EventCursor
    text: str
    calls: tuple[RecordedCall, ...]
    is_closed: bool
    said_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run and its committed steps, in order.

    Attributes:
        final_event: Id of the last event; None while the run is open.
        response: The response of the step after `steps`, if it is committed and calls of it are open.
        left_out: Notes for the blocks that the provider refused. In which step is not known.
        compactions: Compactions after the last step.
        waits: Of the calls of `response`, oldest first; read only while the run waits.
    """

    run_id: str
    thread_id: str
    agent_id: str
    status: str
    attempt: int
    model: str | None
    merged_into: str | None
    stop_reason: str | None
    limit: Limit | None
    text: str | None
    error: tuple[str, str, bool] | None
    """Kind, message, whether it may be retried."""
    usage: TokenUsage | None
    final_event: EventCursor | None
    steps: tuple[RecordedStep, ...]
    label: str | None = None
    target: DeliveryTarget | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    left_out: tuple[str, ...] = ()
    compactions: tuple[RecordedCompaction, ...] = ()
    response: RecordedResponse | None = None
    waits: tuple[RecordedWait, ...] = ()
    hold: HoldDetail | None = None
    """Why it is held, if it is."""
    held_until: datetime | None = None


async def load_recorded_run(connection: Connection, tenant_id: str, run_id: str) -> RecordedRun | None:
    """Return a run with its committed steps; None if there is no such run."""
    row = await connection.fetchrow(_RUN, tenant_id=tenant_id, run_id=run_id)
    if row is None:
        return None
    steps: tuple[RecordedStep, ...] = ()
    response: RecordedResponse | None = None
    compactions: tuple[RecordedCompaction, ...] = ()
    waits: tuple[RecordedWait, ...] = ()
    if row["turn_id"] is not None:
        messages = await connection.fetch(_MESSAGES, turn_id=row["turn_id"])
        calls = await connection.fetch(_CALLS, turn_id=row["turn_id"], run_id=run_id)
        response = _response(messages, calls, committed=row["steps"])
        rows = await connection.fetch(_COMPACTIONS, turn_id=row["turn_id"], started_at=row["started_at"])
        steps, compactions = _placed(_steps(messages, calls, committed=row["steps"]), map(_compaction, rows))
        if row["status"] == "waiting" and response is not None:
            waits = tuple(map(_wait, await connection.fetch(_WAITS, run_id=run_id, step=response.index)))
    error = None
    if row["error_kind"] is not None:
        error = (row["error_kind"], row["error_message"] or "", bool(row["error_retryable"]))
    return RecordedRun(
        run_id=row["id"],
        thread_id=row["thread_id"],
        agent_id=row["agent_id"],
        status=row["status"],
        attempt=row["attempt"],
        model=row["model"],
        merged_into=row["merged_into"],
        stop_reason=row["stop_reason"],
        limit=row["limit_reached"],
        text=row["result_text"],
        error=error,
        usage=_usage(row),
        final_event=_cursor(row["final_event_id"]),
        steps=steps,
        label=row["label"],
        target=DeliveryTarget.of(row["channel"], row["recipient"], row["parent_run_id"]),
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        left_out=tuple((row["refused_blocks"] or {}).values()),
        compactions=compactions,
        response=response,
        waits=waits,
        hold=None if row["hold"] is None else HoldDetail.model_validate(row["hold"]),
        held_until=row["held_until"],
    )


def _placed(
    steps: Sequence[RecordedStep], compactions: Iterable[RecordedCompaction]
) -> tuple[tuple[RecordedStep, ...], tuple[RecordedCompaction, ...]]:
    """Return the steps, each with the compactions before it, and the compactions after the last."""
    left = deque(compactions)
    placed: list[RecordedStep] = []
    for step in steps:
        before: list[RecordedCompaction] = []
        while left and step.said_at is not None and left[0].ended_at <= step.said_at:
            before.append(left.popleft())
        placed.append(replace(step, compactions=tuple(before)))
    return tuple(placed), tuple(left)


def _steps(messages: list[Row], calls: list[Row], *, committed: int) -> tuple[RecordedStep, ...]:
    """Group rows by step. A step with unfinished tools is left out: it may still change."""
    calls_of: defaultdict[int, list[RecordedCall]] = defaultdict(list)
    for call in calls:
        calls_of[call["step"]].append(_call(call))
    rows_of: defaultdict[int, list[Row]] = defaultdict(list)
    for row in messages:
        if row["step"] < committed:
            rows_of[row["step"]].append(row)
    return tuple(
        RecordedStep(
            index=index,
            # The response may have been committed before its tools ran, with an earlier estimate of the closing event.
            closed_by=max((c for row in rows if (c := _cursor(row["event_id"]))), key=EventCursor.key, default=None),
            text="".join(_text(row["content"]) for row in rows if row["kind"] == "response"),
            calls=tuple(calls_of[index]),
            steered_by=tuple(row["run_id"] for row in rows if row["kind"] == "steering"),
            used=next((TokenUsage(**row["used"]) for row in rows if row["used"] is not None), None),
            said_at=rows[0]["created_at"],
            closed_at=rows[-1]["created_at"],
        )
        for index, rows in sorted(rows_of.items())
    )


def _response(messages: list[Row], calls: list[Row], *, committed: int) -> RecordedResponse | None:
    """Return the response of the open step. None if there is none, or if the step was completed meanwhile."""
    rows = [row for row in messages if row["step"] >= committed]
    if len(rows) != 1 or rows[0]["kind"] != "response" or (told_before := _cursor(rows[0]["event_id"])) is None:
        return None
    (row,) = rows
    of_step = [call for call in calls if call["step"] == row["step"]]
    return RecordedResponse(
        index=row["step"],
        told_before=told_before,
        text=_text(row["content"]),
        calls=tuple(map(_call, of_step)),
        is_closed=any(call["waited"] for call in of_step),
        said_at=row["created_at"],
    )


def _compaction(row: Row) -> RecordedCompaction:
    return RecordedCompaction(row["tokens_before"], row["tokens_after"], row["began_at"], row["created_at"])


def _call(row: Row) -> RecordedCall:
    call = ToolCall(
        row["call_id"],
        row["tool_name"],
        row["params"] or {},
        row["step"],
        row["sequence"],
        row["status"],
        None if row["result"] is None else tuple(row["result"]),
        completed_at=row["completed_at"],
    )
    return RecordedCall(call.id, call.tool_name, call.status, row["started_at"], call.completed_at, state_change(call))


def _wait(row: Row) -> RecordedWait:
    request = wait_adapter.validate_python(row["request"])
    return RecordedWait(row["tool_call_id"], request, row["is_open"], row["created_at"])


def _text(content: list[ContentBlock]) -> str:
    return "".join(str(block.get("text", "")) for block in content if block.get("type") == "text")


def _cursor(event_id: str | None) -> EventCursor | None:
    return None if event_id is None else EventCursor.parse(event_id)


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
