"""Activations of agents: moves between states, progress and results, guarded by the run of the activation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova_workers.base.vocabulary import ENDED_AGENTS, AgentState, sql_list
from nova_workers.contracts.content import storable
from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.domain.orchestrations.sql.agents import AGENT_COLUMNS, descriptor
from nova_workers.domain.runs.sql.filters import IS_RUNNING
from nova_workers.ledger.database import Connection

# One guarded move. `run_id` guards against a run of an earlier activation.
_MOVE = f"""
UPDATE orchestration_agents a
   SET state = :state, state_at = now(),
       ended_at = CASE WHEN :ended THEN now() END,
       error_code = COALESCE(:error_code, CASE WHEN :ended THEN error_code END),
       error_message = COALESCE(:error_message, CASE WHEN :ended THEN error_message END)
 WHERE id = ANY(:ids::text[]) AND state = ANY(:sources::text[])
   AND (:run_id::text IS NULL OR run_id = :run_id)
   AND (:fence::bigint IS NULL
        OR EXISTS (SELECT FROM runs r WHERE r.id = a.run_id AND r.fence = :fence AND {IS_RUNNING}))
RETURNING id
"""

# The end of an activation: a move, with its final text unless it recorded a summary. An agent that was ended before
# keeps its state, and gets its partial text.
_END = f"""
WITH before AS (
    SELECT id, state = ANY(:sources::text[]) AS moves
      FROM orchestration_agents WHERE id = :id AND run_id = :run_id
       FOR UPDATE
), ended AS (
    UPDATE orchestration_agents a
       SET state = CASE WHEN moves THEN :state ELSE a.state END,
           state_at = CASE WHEN moves THEN now() ELSE a.state_at END,
           ended_at = CASE WHEN moves THEN now() ELSE a.ended_at END,
           error_code = CASE WHEN moves THEN :error_code ELSE a.error_code END,
           error_message = CASE WHEN moves THEN :error_message ELSE a.error_message END,
           summary = COALESCE(a.summary, :summary)
      FROM before
     WHERE a.id = before.id
    RETURNING a.*, before.moves
)
SELECT {AGENT_COLUMNS}, a.moves,
       EXISTS (SELECT 1 FROM orchestration_agents c
                WHERE c.orchestration_id = a.orchestration_id AND c.parent_id = a.id
                  AND c.state NOT IN {sql_list(ENDED_AGENTS)}) AS has_active_children
  FROM ended a
"""

# A new activation of an ended agent: a run at the end of its thread.
_REACTIVATE = """
UPDATE orchestration_agents
   SET state = 'PENDING', state_at = now(), run_id = :run_id, prompt = :prompt, activations = activations + 1,
       reasoning_ms = 0, summary = NULL, artifacts = '{}', error_code = NULL, error_message = NULL, progress = NULL,
       ended_at = NULL
 WHERE id = :id AND state = ANY(:sources::text[])
RETURNING id
"""

_SUMMARY = """
UPDATE orchestration_agents SET summary = :summary, artifacts = :artifacts WHERE id = :id AND run_id = :run_id
RETURNING id
"""
_PROGRESS = """
UPDATE orchestration_agents
   SET progress = jsonb_build_object('status', :status::text, 'percent', :percent::float8, 'at', now())
 WHERE id = :id AND run_id = :run_id
RETURNING id
"""
_REASONING = """
UPDATE orchestration_agents SET reasoning_ms = reasoning_ms + :reasoning_ms WHERE id = :id AND run_id = :run_id
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """An agent at the end of an activation. `moved` is False if it had been ended before."""

    agent: AgentDescriptor
    moved: bool
    has_active_children: bool


async def move(
    connection: Connection,
    ids: Sequence[str],
    state: AgentState,
    sources: Iterable[AgentState],
    *,
    run_id: str | None = None,
    fence: int | None = None,
    error_code: str | None = None,
    error_message: str | None = None,
) -> list[str]:
    """Move agents to a state, and return those that moved.

    Args:
        connection: The ledger.
        ids: The agents.
        state: The new state.
        sources: The states from which the move is legal (`lifecycle.legal_sources`); others stay.
        run_id: Only if this is the run of the agent's latest activation.
        fence: Only while that run is held under this fence.
        error_code: Of a failure.
        error_message: Of a failure.
    """
    rows = await connection.fetch(
        _MOVE,
        ids=list(ids),
        state=state,
        sources=list(sources),
        ended=state in ENDED_AGENTS,
        run_id=run_id,
        fence=fence,
        error_code=error_code,
        error_message=None if error_message is None else storable(error_message),
    )
    return [row["id"] for row in rows]


async def reactivate(
    connection: Connection, agent_id: str, run_id: str, prompt: str, sources: Iterable[AgentState]
) -> bool:
    """Make `run_id` the run of a new activation of an ended agent. False if it has not ended."""
    row = await connection.fetchval(
        _REACTIVATE, id=agent_id, run_id=run_id, prompt=storable(prompt), sources=list(sources)
    )
    return row is not None


async def end_activation(
    connection: Connection,
    agent_id: str,
    run_id: str,
    state: AgentState,
    sources: Iterable[AgentState],
    *,
    summary: str,
    error_code: str | None = None,
    error_message: str | None = None,
) -> Ended | None:
    """Record the end of an activation with its final text, which a recorded summary precedes.

    Args:
        connection: The ledger.
        run_id: The run of the activation.
        state: The agent's new state.
        sources: The states from which the move is legal; an agent in another state keeps it.
        summary: The final text.
        error_code: Of a failure.
        error_message: Of a failure.

    Returns:
        The agent as it stands; None if the run is not of its latest activation.
    """
    row = await connection.fetchrow(
        _END,
        id=agent_id,
        run_id=run_id,
        state=state,
        sources=list(sources),
        summary=storable(summary),
        error_code=error_code,
        error_message=None if error_message is None else storable(error_message),
    )
    if row is None:
        return None
    values = dict(row)
    moved, has_active_children = values.pop("moves"), values.pop("has_active_children")
    return Ended(descriptor(values), moved, has_active_children)


async def set_summary(
    connection: Connection, agent_id: str, run_id: str, summary: str, artifacts: Mapping[str, Any]
) -> bool:
    """Record the result of an activation. False if it is not the agent's latest."""
    row = await connection.fetchval(
        _SUMMARY, id=agent_id, run_id=run_id, summary=storable(summary), artifacts=dict(artifacts)
    )
    return row is not None


async def set_progress(connection: Connection, agent_id: str, run_id: str, status: str, percent: float | None) -> bool:
    """Record the latest progress of an activation. False if it is not the agent's latest."""
    row = await connection.fetchval(_PROGRESS, id=agent_id, run_id=run_id, status=storable(status), percent=percent)
    return row is not None


async def add_reasoning(connection: Connection, agent_id: str, run_id: str, reasoning_ms: int) -> None:
    """Add the model time of an attempt to its activation."""
    await connection.execute(_REASONING, id=agent_id, run_id=run_id, reasoning_ms=reasoning_ms)
