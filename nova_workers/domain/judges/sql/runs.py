"""The runs of judges: background runs of one reserved agent, each of the version that is its judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nova_workers.base.errors import missing
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.default_agents import JUDGE_AGENT
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.agents.sql import records as agents
from nova_workers.domain.runs.sql.submit import ask_for_version
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_runs, insert_threads
from nova_workers.ledger.stored import to_store

_FIND = """
SELECT max(v.version)
  FROM agents a JOIN agent_versions v ON v.tenant_id = a.tenant_id AND v.agent_id = a.id
 WHERE a.tenant_id = :tenant_id AND a.id = :agent_id AND a.deleted_at IS NULL AND v.spec = :spec
"""

# The reserved agent is made with its tenant's first judge, and again if it was deleted.
_ENSURE_AGENT = f"""
WITH made AS (
    INSERT INTO agents AS a (tenant_id, id, version, spec) VALUES (:tenant_id, :agent_id, 1, :spec)
    ON CONFLICT (tenant_id, id) DO UPDATE
       SET version = {agents.NEXT_VERSION}, spec = EXCLUDED.spec, updated_at = now(), deleted_at = NULL,
           renamed_to = NULL
     WHERE a.deleted_at IS NOT NULL
    RETURNING tenant_id, id, version, spec
)
INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
SELECT tenant_id, id, version, spec, 'seed' FROM made
"""

_THREADS = insert_threads(
    "agent CROSS JOIN given", id="given.thread_id", agent_id="agent.id", origin="'evaluation'", ephemeral="true"
)
# As the runs of evaluations, below all other runs of the tenant.
_RUNS = insert_runs(
    "agent CROSS JOIN given",
    id="given.run_id",
    tenant_id="agent.tenant_id",
    thread_id="given.thread_id",
    agent_id="agent.id",
    seq="1",
    content="given.content",
    queue="'background'",
    source="'evaluation'",
    priority="-100",
)
_QUEUE = f"""
WITH agent AS (
    SELECT id, tenant_id FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL
), given AS MATERIALIZED (
    SELECT x.* FROM jsonb_to_recordset(:runs) AS x(run_id text, thread_id text, content jsonb)
), threads AS (
    {_THREADS}
)
{_RUNS}
"""


@dataclass(frozen=True, slots=True)
class JudgeRun:
    """A run that asks a judge."""

    run_id: str
    thread_id: str
    content: Sequence[ContentBlock]


async def find_judge(connection: Connection, tenant_id: str, spec: AgentSpec) -> int | None:
    """Return the version of the reserved agent that has a configuration; None if none has."""
    stored = to_store(AgentSpec, spec)
    return await connection.fetchval(_FIND, tenant_id=tenant_id, agent_id=JUDGE_AGENT, spec=stored)


async def ensure_judge(transaction: Connection, tenant_id: str, spec: AgentSpec) -> int:
    """Return the version of the reserved agent that has a configuration, which is made if there is none."""
    found = await find_judge(transaction, tenant_id, spec)
    if found is not None:
        return found
    stored = to_store(AgentSpec, spec)
    await transaction.execute(_ENSURE_AGENT, tenant_id=tenant_id, agent_id=JUDGE_AGENT, spec=stored)
    # Of two that look at once, the second waits here, and finds what the first made.
    await agents.lock_agent(transaction, tenant_id, JUDGE_AGENT)
    found = await find_judge(transaction, tenant_id, spec)
    if found is not None:
        return found
    return (await agents.save_version(transaction, tenant_id, JUDGE_AGENT, spec, created_by="seed")).version


async def queue_judges(
    transaction: Connection, tenant_id: str, version: int, runs: Sequence[JudgeRun]
) -> list[Doorbell]:
    """Queue runs of a judge, each on an ephemeral thread of its own, in two statements.

    Raises:
        NotFound: The version is gone. Nothing may be committed.
    """
    rows: list[JsonObject] = [
        {"run_id": one.run_id, "thread_id": one.thread_id, "content": list(one.content)} for one in runs
    ]
    made = await transaction.fetch(_QUEUE, tenant_id=tenant_id, agent_id=JUDGE_AGENT, runs=rows)
    if not await ask_for_version(transaction, tenant_id, [one.run_id for one in runs], version):
        raise missing("agent_version", version, f"Agent {JUDGE_AGENT!r} has no such version.")
    return [Doorbell(row["id"], row["thread_id"], row["queue"]) for row in made]
