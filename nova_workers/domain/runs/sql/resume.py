"""Reads what earlier attempts committed of a turn, for the next attempt to continue from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nova_workers.contracts.content import ContentBlock, Message
from nova_workers.contracts.engine import StepRecord, ToolCall
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.runs.sql.filters import IS_RUNNING
from nova_workers.ledger.database import Connection, Row

_LOAD_MESSAGES = """
SELECT seq, step, kind, role, content, run_id FROM messages WHERE turn_id = :turn_id AND seq > 0 ORDER BY seq
"""
_LOAD_USAGE = """
SELECT input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_usd::float8,
       permissions_used, refused_blocks,
       (SELECT c.through_step FROM compactions c WHERE c.turn_id = turns.parent_turn_id) AS compacted_through
  FROM turns WHERE id = :turn_id
"""
_LOAD_CALLS = """
SELECT call_id, step, sequence, tool_name, params, status, result, error, started_at, completed_at,
       (SELECT w.kind FROM turns t JOIN run_waits w ON w.run_id = t.run_id
         WHERE t.id = c.turn_id AND w.tool_call_id = c.call_id ORDER BY w.id DESC LIMIT 1) AS waited_for
  FROM tool_calls c WHERE turn_id = :turn_id ORDER BY sequence
"""

# Waits for transactions that may still be committing results, so the results are not part of the condition.
_FIND_RESULTS = f"""
SELECT c.call_id, c.step, c.sequence, c.tool_name, c.params, c.status, c.result, c.error, c.started_at, c.completed_at
  FROM tool_calls c JOIN runs r ON r.turn_id = c.turn_id
 WHERE r.id = :run_id AND r.fence = :fence AND {IS_RUNNING} AND c.call_id = ANY(:call_ids::text[])
 ORDER BY c.id
   FOR UPDATE OF c
"""


@dataclass(frozen=True, slots=True)
class Journal:
    """The committed steps of a turn, the seq of its next message, and its usage.

    Attributes:
        permissions_used: What earlier attempts recorded in `TurnFacts.permissions_used`.
        compacted_through: The last step that a summary replaces; -1 without one.
        refused: Notes for the blocks that the provider refused in this turn, by fingerprint.
        ended: Calls of the open step that have results: from outside while the run was waiting, or from a worker that
            was lost, perhaps before it published their ends.
        waits: What the run waited for last for calls of the open step, by the call's id.
    """

    steps: tuple[StepRecord, ...]
    next_seq: int
    spent: TokenUsage = field(default_factory=TokenUsage)
    ended: tuple[ToolCall, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict[str, str])
    permissions_used: Mapping[str, Any] | None = None
    compacted_through: int = -1
    refused: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def next_step(self) -> int:
        """The step for which the model is called next."""
        return self.steps[-1].index + 1 if self.steps else 0

    @property
    def has_waited(self) -> bool:
        """Whether the run waited for calls of the open step, and so a live `step` event closed its text."""
        return bool(self.waits)

    @property
    def steps_for_model(self) -> tuple[StepRecord, ...]:
        """The steps as the model reads them: without the messages that a summary replaces."""
        return tuple(
            replace(step, messages=()) if step.index <= self.compacted_through else step for step in self.steps
        )


async def load_journal(connection: Connection, turn_id: str) -> Journal:
    """Return the steps of a turn that earlier attempts committed."""
    messages = await connection.fetch(_LOAD_MESSAGES, turn_id=turn_id)
    if not messages:
        return Journal((), 1)
    calls = await connection.fetch(_LOAD_CALLS, turn_id=turn_id)
    steps: dict[int, StepRecord] = {}
    for row in messages:
        index: int = row["step"]
        message = Message(role=row["role"], content=tuple(row["content"]))
        step = steps.get(index) or _empty_step(index, calls)
        steps[index] = replace(step, messages=(*step.messages, message))
    ordered = [steps[index] for index in sorted(steps)]
    ordered[-1] = replace(ordered[-1], complete=_is_complete(ordered[-1]))
    used = await connection.fetchrow(_LOAD_USAGE, turn_id=turn_id)
    assert used is not None  # noqa: S101 - its messages refer to it
    *counts, permissions_used, refused, compacted_through = used
    open_step = None if ordered[-1].complete else ordered[-1].index
    open_calls = [row for row in calls if row["step"] == open_step]
    return Journal(
        tuple(ordered),
        messages[-1]["seq"] + 1,
        TokenUsage(*counts),
        ended=tuple(_call(row) for row in open_calls if row["result"] is not None),
        waits={row["call_id"]: row["waited_for"] for row in open_calls if row["waited_for"] is not None},
        permissions_used=permissions_used,
        compacted_through=-1 if compacted_through is None else compacted_through,
        refused=refused or {},
    )


async def find_results(connection: Connection, run_id: str, fence: int, call_ids: Sequence[str]) -> dict[str, ToolCall]:
    """Return those calls of this claim that have a result in the ledger, by id."""
    rows = await connection.fetch(_FIND_RESULTS, run_id=run_id, fence=fence, call_ids=list(call_ids))
    return {row["call_id"]: _call(row) for row in rows if row["result"] is not None}


def _empty_step(index: int, calls: Sequence[Row]) -> StepRecord:
    return StepRecord(index=index, messages=(), tool_calls=tuple(_call(row) for row in calls if row["step"] == index))


def _call(row: Row) -> ToolCall:
    result: list[ContentBlock] | None = row["result"]
    return ToolCall(
        id=row["call_id"],
        tool_name=row["tool_name"],
        params=row["params"],
        step=row["step"],
        sequence=row["sequence"],
        status=row["status"],
        result=None if result is None else tuple(result),
        error=row["error"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
    )


def _is_complete(step: StepRecord) -> bool:
    """Return whether a step has a response without calls, or the results of its calls."""
    return not step.tool_calls or len(step.messages) > 1
