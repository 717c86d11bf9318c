"""Inserts orchestrations and agents, each with a thread and a first run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nova_workers.base.errors import AgentSpawnError
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import AgentRole, AgentState, PermissionMode, RunQueue, RunSource
from nova_workers.contracts.content import JsonObject, storable
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.orchestrations.sql.locking import LockedTree
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_runs, insert_threads

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
    trigger_id=":trigger_id",
    meta=":metadata",
)

# The agent's thread, if the agent whose configuration bounds the tree still exists.
_THREAD = f"""
thread AS (
    {
    insert_threads(
        "agents WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL",
        id=":thread_id",
        agent_id="id",
        origin=":source",
        orchestration_id=":orchestration_id",
    )
}
    RETURNING id, tenant_id
)
"""
_THREAD_AND_RUN = f"""{_THREAD}, run AS (
    {_RUN}
)
"""

_AGENT = """
INSERT INTO orchestration_agents (id, tenant_id, orchestration_id, parent_id, thread_id, run_id, role, depth, name,
                                  prompt, tools, model, cwd, plugins, permission_mode, expert_id, category, spec, state)
SELECT :id, :tenant_id, :orchestration_id, :parent_id, :thread_id, :run_id, :role, :depth, :name,
       :prompt, :tools, :model, :cwd, :plugins, :permission_mode, :expert_id, :category, :spec, :state
"""

_INSERT = f"WITH {_THREAD_AND_RUN}, agent AS ({_AGENT} FROM run) SELECT id FROM run"

_TREE = """
    INSERT INTO orchestrations (id, tenant_id, agent_id, master_id, thread_id, task, config, config_version, limits,
                                queue, source, source_run_id, meta, deadline_at, start_key, report_thread_id,
                                is_external, master_seen_at)
    SELECT :orchestration_id, :tenant_id, :agent_id, :id, :thread_id, :task, :config, :config_version, :limits,
           :queue, :source, :parent_run_id, :metadata, now() + :time_budget_s::float8 * interval '1 second',
           :start_key, :report_thread_id, :is_external::bool, CASE WHEN :is_external::bool THEN now() END
"""

# An orchestration with its master. An external master has no run.
_INSERT_TREE = f"""
WITH {_THREAD_AND_RUN}, tree AS ({_TREE} FROM run RETURNING id), agent AS ({_AGENT} FROM tree) SELECT id FROM run
"""
_INSERT_EXTERNAL = f"""
WITH {_THREAD}, tree AS ({_TREE} FROM thread RETURNING id), agent AS ({_AGENT} FROM tree) SELECT id FROM thread
"""

# Two statements, so that the second one sees what was committed while the first waited.
_LOCK_START_KEY = "SELECT pg_advisory_xact_lock(hashtextextended(:tenant_id || ' ' || :start_key, 0))"
_FIND_STARTED = """
SELECT o.id, o.master_id, a.run_id FROM orchestrations o JOIN orchestration_agents a ON a.id = o.master_id
 WHERE o.tenant_id = :tenant_id AND o.start_key = :start_key
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
    state: AgentState = "PENDING"


@dataclass(frozen=True, slots=True)
class NewTree:
    """An orchestration to insert with its master, with everything resolved.

    Attributes:
        start_key: Unique in the tenant; see `find_started`.
        report_thread_id: The thread that gets a message when it ends.
        trigger_id: The trigger that fired it.
        is_external: Its master is a program outside of the fleet, and gets no run.
    """

    tenant_id: str
    agent_id: str
    master: NewAgent
    config: JsonObject
    config_version: int | None
    limits: JsonObject
    queue: RunQueue
    source: RunSource
    metadata: Mapping[str, Any]
    start_key: str | None = None
    report_thread_id: str | None = None
    trigger_id: str | None = None
    is_external: bool = False


async def insert_tree(connection: Connection, new: NewTree, *, run_id: str) -> tuple[str, str, Doorbell | None] | None:
    """Insert an orchestration with its master, whose run `run_id` is queued.

    Returns:
        Ids of the orchestration and the master, and the doorbell of the run, which an external master does not have;
        None if there is no such agent.
    """
    ids = {**_ids(new_id("orc")), "run_id": run_id}
    values = {
        **_values(new.master),
        **ids,
        "tenant_id": new.tenant_id,
        "agent_id": new.agent_id,
        "task": new.master.prompt,
        "config": new.config,
        "config_version": new.config_version,
        "limits": new.limits,
        "time_budget_s": new.limits.get("time_budget_s"),
        "queue": new.queue,
        "source": new.source,
        "metadata": dict(new.metadata),
        "start_key": new.start_key,
        "report_thread_id": new.report_thread_id,
        "is_external": new.is_external,
    }
    if new.is_external:
        del values["content"]
        found = await connection.fetchval(_INSERT_EXTERNAL, **values)
    else:
        found = await connection.fetchval(_INSERT_TREE, **values, trigger_id=new.trigger_id)
    if found is None:
        return None
    bell = None if new.is_external else Doorbell(ids["run_id"], ids["thread_id"], new.queue)
    return ids["orchestration_id"], ids["id"], bell


async def find_started(connection: Connection, tenant_id: str, start_key: str) -> tuple[str, str, str] | None:
    """Return the orchestration of a start key, its master and the master's latest run. Call it in a transaction.

    Until the transaction ends, no other one can start an orchestration with the key.
    """
    await connection.execute(_LOCK_START_KEY, tenant_id=tenant_id, start_key=start_key)
    row = await connection.fetchrow(_FIND_STARTED, tenant_id=tenant_id, start_key=start_key)
    return None if row is None else (row["id"], row["master_id"], row["run_id"])


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
        trigger_id=None,
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
        "state": agent.state,
    }
