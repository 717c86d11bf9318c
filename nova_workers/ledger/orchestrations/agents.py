"""Agents of orchestrations: inserts with thread and first run, moves between states, and reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova_workers.contracts.content import JsonObject, storable
from nova_workers.contracts.orchestration import AgentDescriptor, TreeSpending
from nova_workers.contracts.runs import Doorbell
from nova_workers.errors import AgentSpawnError
from nova_workers.ids import new_id
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.inserts import insert_runs, insert_threads
from nova_workers.ledger.orchestrations.locking import LockedTree
from nova_workers.vocabulary import ENDED_AGENTS, AgentRole, AgentState, PermissionMode, RunSource, sql_list

__all__ = [
    "Ended",
    "NewAgent",
    "add_reasoning",
    "agents_of",
    "close_tree",
    "end_activation",
    "get_agent",
    "insert_agent",
    "insert_tree",
    "move",
    "open_trees",
    "reactivate",
    "set_progress",
    "set_summary",
    "tree_spending",
]

_COLUMNS = """
a.id, a.tenant_id, a.orchestration_id, a.parent_id, a.thread_id, a.run_id, a.role, a.state, a.depth, a.name, a.prompt,
a.tools, a.model, a.cwd, a.plugins, a.permission_mode, a.expert_id, a.category, a.activations, a.summary, a.artifacts,
a.error_code, a.error_message, a.progress, a.state_at, a.created_at, a.ended_at
"""

_RUN = insert_runs(
    "thread",
    id=":run_id",
    tenant_id="tenant_id",
    thread_id=":thread_id",
    agent_id=":agent_id",
    seq="1",
    content=":content",
    queue=":queue",
    source=":source",
    parent_run_id=":parent_run_id",
    depth=":depth",
    meta=":metadata",
)

# The agent's thread and its first run, if the agent whose configuration bounds the tree still exists.
_THREAD_AND_RUN = f"""
thread AS (
    {
    insert_threads(
        "agents WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL",
        id=":thread_id",
        agent_id="id",
        orchestration_id=":orchestration_id",
    )
}
    RETURNING id, tenant_id
), run AS (
    {_RUN}
)
"""

_AGENT = """
INSERT INTO orchestration_agents (id, tenant_id, orchestration_id, parent_id, thread_id, run_id, role, depth, name,
                                  prompt, tools, model, cwd, plugins, permission_mode, expert_id, category, spec)
SELECT :id, :tenant_id, :orchestration_id, :parent_id, :thread_id, :run_id, :role, :depth, :name,
       :prompt, :tools, :model, :cwd, :plugins, :permission_mode, :expert_id, :category, :spec
"""

_INSERT = f"WITH {_THREAD_AND_RUN}, agent AS ({_AGENT} FROM run) SELECT id FROM run"

# An orchestration with its master.
_INSERT_TREE = f"""
WITH {_THREAD_AND_RUN}, tree AS (
    INSERT INTO orchestrations (id, tenant_id, agent_id, master_id, thread_id, task, config, config_version, limits,
                                queue, source, source_run_id, meta, deadline_at)
    SELECT :orchestration_id, :tenant_id, :agent_id, :id, :thread_id, :task, :config, :config_version, :limits,
           :queue, :source, :parent_run_id, :metadata, now() + :time_budget_s::float8 * interval '1 second'
      FROM run
    RETURNING id
), agent AS (
    {_AGENT} FROM tree
)
SELECT id FROM run
"""

_AGENTS = f"""
SELECT {_COLUMNS} FROM orchestration_agents a
 WHERE a.tenant_id = :tenant_id AND a.orchestration_id = :orchestration_id ORDER BY a.id
"""
_GET = f"SELECT {_COLUMNS} FROM orchestration_agents a WHERE a.tenant_id = :tenant_id AND a.id = :id"

# One guarded move. `run_id` guards against a run of an earlier activation.
_MOVE = """
UPDATE orchestration_agents
   SET state = :state, state_at = now(),
       ended_at = CASE WHEN :ended THEN now() END,
       error_code = COALESCE(:error_code, CASE WHEN :ended THEN error_code END),
       error_message = COALESCE(:error_message, CASE WHEN :ended THEN error_message END)
 WHERE id = ANY(:ids::text[]) AND state = ANY(:sources::text[])
   AND (:run_id::text IS NULL OR run_id = :run_id)
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
SELECT {_COLUMNS}, a.moves,
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

_CLOSE = "UPDATE orchestrations SET finished_at = now() WHERE id = :id AND finished_at IS NULL"
_REOPEN = """
UPDATE orchestrations
   SET finished_at = NULL, deadline_at = now() + (limits->>'time_budget_s')::float8 * interval '1 second'
 WHERE id = :id
"""
_OPEN = "SELECT id FROM orchestrations WHERE finished_at IS NULL AND id > :after ORDER BY id LIMIT :limit"

# Committed usage. A step counts once it is committed; the turns of one tree are a few hundred rows at most.
_SPENDING = """
SELECT COALESCE(sum(t.input_tokens + t.output_tokens + t.cache_read_tokens + t.cache_write_tokens), 0)::bigint
           AS tokens,
       COALESCE(sum(t.cost_usd), 0)::float8 AS cost_usd
  FROM orchestration_agents a JOIN turns t ON t.thread_id = a.thread_id
 WHERE a.orchestration_id = :orchestration_id AND t.id IS DISTINCT FROM :except_turn_id
"""


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent to insert, with everything resolved."""

    role: AgentRole
    name: str
    prompt: str
    spec: JsonObject
    parent_id: str | None = None
    parent_run_id: str | None = None
    depth: int = 0
    tools: tuple[str, ...] | None = None
    model: str | None = None
    cwd: str | None = None
    plugins: tuple[str, ...] = ()
    permission_mode: PermissionMode = "DEFAULT"
    expert_id: str | None = None
    category: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """An agent at the end of an activation. `moved` is False if it had been ended before."""

    agent: AgentDescriptor
    moved: bool
    has_active_children: bool


async def insert_tree(
    connection: Connection,
    master: NewAgent,
    *,
    tenant_id: str,
    agent_id: str,
    task: str,
    config: JsonObject,
    config_version: int | None,
    limits: JsonObject,
    queue: str,
    source: RunSource,
    metadata: Mapping[str, Any],
    run_id: str,
) -> tuple[str, str, Doorbell] | None:
    """Insert an orchestration with its master, whose run `run_id` is queued.

    Returns:
        Ids of the orchestration and the master, and the doorbell of the run; None if there is no such agent.
    """
    ids = {**_ids(new_id("orc")), "run_id": run_id}
    run = await connection.fetchval(
        _INSERT_TREE,
        **_values(master),
        **ids,
        tenant_id=tenant_id,
        agent_id=agent_id,
        task=task,
        config=config,
        config_version=config_version,
        limits=limits,
        time_budget_s=limits.get("time_budget_s"),
        queue=queue,
        source=source,
        metadata=dict(metadata),
    )
    if run is None:
        return None
    return ids["orchestration_id"], ids["id"], Doorbell(ids["run_id"], ids["thread_id"], queue)


async def insert_agent(connection: Connection, tree: LockedTree, agent: NewAgent) -> tuple[str, Doorbell]:
    """Insert an agent with a queued run, and return its id and the run's doorbell.

    Raises:
        AgentSpawnError: The agent whose configuration bounds the tree was deleted.
    """
    ids = _ids(tree.id)
    run = await connection.fetchval(
        _INSERT,
        **_values(agent),
        **ids,
        tenant_id=tree.tenant_id,
        agent_id=tree.agent_id,
        queue=tree.queue,
        source="agent",
        metadata={},
    )
    if run is None:
        raise AgentSpawnError(f"Agent {tree.agent_id!r}, which this orchestration runs under, was deleted.")
    return ids["id"], Doorbell(ids["run_id"], ids["thread_id"], tree.queue)


def _ids(orchestration_id: str) -> dict[str, str]:
    return {
        "orchestration_id": orchestration_id,
        "id": new_id("oag"),
        "thread_id": new_id("thr"),
        "run_id": new_id("run"),
    }


def _values(agent: NewAgent) -> dict[str, Any]:
    return {
        "parent_id": agent.parent_id,
        "parent_run_id": agent.parent_run_id,
        "depth": agent.depth,
        "role": agent.role,
        "name": agent.name,
        "prompt": storable(agent.prompt),
        "content": [{"type": "text", "text": storable(agent.prompt)}],
        "tools": None if agent.tools is None else list(agent.tools),
        "model": agent.model,
        "cwd": agent.cwd,
        "plugins": list(agent.plugins),
        "permission_mode": agent.permission_mode,
        "expert_id": agent.expert_id,
        "category": agent.category,
        "spec": agent.spec,
    }


async def agents_of(connection: Connection, tenant_id: str, orchestration_id: str) -> list[AgentDescriptor]:
    """Return all agents of a tree, in the order in which they were spawned."""
    return _descriptors(await connection.fetch(_AGENTS, tenant_id=tenant_id, orchestration_id=orchestration_id))


async def get_agent(connection: Connection, tenant_id: str, agent_id: str) -> AgentDescriptor | None:
    """Return an agent of an orchestration, or None."""
    row = await connection.fetchrow(_GET, tenant_id=tenant_id, id=agent_id)
    return None if row is None else _descriptor(row)


async def move(
    connection: Connection,
    ids: Sequence[str],
    state: AgentState,
    sources: Iterable[AgentState],
    *,
    run_id: str | None = None,
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


async def set_summary(
    connection: Connection, agent_id: str, run_id: str, summary: str, artifacts: Mapping[str, Any]
) -> bool:
    """Record the result of an activation. False if it is not the agent's latest."""
    row = await connection.fetchval(
        _SUMMARY, id=agent_id, run_id=run_id, summary=storable(summary), artifacts=dict(artifacts)
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
        agent_id: The agent.
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
    return Ended(_agent(values), moved, has_active_children)


async def set_progress(connection: Connection, agent_id: str, run_id: str, status: str, percent: float | None) -> bool:
    """Record the latest progress of an activation. False if it is not the agent's latest."""
    row = await connection.fetchval(_PROGRESS, id=agent_id, run_id=run_id, status=storable(status), percent=percent)
    return row is not None


async def add_reasoning(connection: Connection, agent_id: str, run_id: str, reasoning_ms: int) -> None:
    """Add the model time of an attempt to its activation."""
    await connection.execute(_REASONING, id=agent_id, run_id=run_id, reasoning_ms=reasoning_ms)


async def close_tree(connection: Connection, orchestration_id: str, *, closed: bool = True) -> None:
    """Record that the master ended; or with `closed` false, that it continues, with a new time budget."""
    await connection.execute(_CLOSE if closed else _REOPEN, id=orchestration_id)


async def open_trees(connection: Connection, *, after: str, limit: int) -> list[str]:
    """Return ids of orchestrations whose master has not ended, after `after`."""
    return [row["id"] for row in await connection.fetch(_OPEN, after=after, limit=limit)]


async def tree_spending(
    connection: Connection, orchestration_id: str, *, except_turn_id: str | None = None
) -> TreeSpending:
    """Return what all agents of an orchestration have used, as far as it is committed."""
    row = await connection.fetchrow(_SPENDING, orchestration_id=orchestration_id, except_turn_id=except_turn_id)
    return TreeSpending(0, 0.0) if row is None else TreeSpending(row["tokens"], row["cost_usd"])


def _descriptors(rows: Iterable[Row]) -> list[AgentDescriptor]:
    return [_descriptor(row) for row in rows]


def _descriptor(row: Row) -> AgentDescriptor:
    return _agent(dict(row))


def _agent(values: dict[str, Any]) -> AgentDescriptor:
    values["tools"] = None if values["tools"] is None else tuple(values["tools"])
    values["plugins"] = tuple(values["plugins"])
    return AgentDescriptor(**values)
