"""Reads of orchestrations for people and programs: lists, trees, messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.errors import existing, missing
from nova_workers.base.vocabulary import RunSource
from nova_workers.contracts.http.orchestrations import (
    OrchestrationMessageView,
    OrchestrationTree,
    OrchestrationView,
    TreeAgent,
)
from nova_workers.contracts.orchestration import OrchestrationLimits
from nova_workers.contracts.waits import ANSWERABLE, HoldDetail, HoldView
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.stored import read_stored

# Sums of turns; cost is null if no turn has a known price.
_USED = """
jsonb_build_object(
    'input_tokens', COALESCE(sum(t.input_tokens), 0), 'output_tokens', COALESCE(sum(t.output_tokens), 0),
    'cache_read_tokens', COALESCE(sum(t.cache_read_tokens), 0),
    'cache_write_tokens', COALESCE(sum(t.cache_write_tokens), 0),
    'reasoning_tokens', COALESCE(sum(t.reasoning_tokens), 0), 'cost_usd', sum(t.cost_usd)::float8) AS usage
"""

_ERROR = """
CASE WHEN {agent}.error_code IS NOT NULL THEN
    jsonb_build_object('code', {agent}.error_code, 'message', COALESCE({agent}.error_message, '')) END AS error
"""

# Of an agent that was given no model: the one of its newest turn, which is the default of then.
_MODEL = """COALESCE({agent}.model, (
    SELECT t.model FROM turns t WHERE t.thread_id = {agent}.thread_id AND t.model IS NOT NULL ORDER BY t.id DESC LIMIT 1
)) AS model"""
_MODEL_OF_MASTER, _MODEL_OF_AGENT = _MODEL.format(agent="m"), _MODEL.format(agent="a")

# Waits are those of the run of an agent's latest activation.
_WAITED_FOR = """
SELECT COALESCE(jsonb_agg(DISTINCT e.id), '[]')
  FROM runs r JOIN run_waits w ON w.run_id = r.id AND w.status = 'open' AND w.kind = 'message',
       jsonb_array_elements_text(w.request->'agent_ids') AS e(id)
 WHERE r.id = a.run_id AND r.status = 'waiting'
"""

_ORCHESTRATIONS = f"""
SELECT o.id, o.agent_id, o.master_id, o.thread_id, o.task, o.queue, o.source, o.config_version,
       o.limits AS frozen_limits, o.meta AS metadata,
       o.created_at, o.deadline_at, o.finished_at, o.is_external,
       m.run_id, m.state, m.summary, {_ERROR.format(agent="m")}, {_MODEL_OF_MASTER}, used.usage,
       (SELECT COALESCE(jsonb_object_agg(c.state, c.agents), '{{}}')
          FROM (SELECT a.state, count(*) AS agents FROM orchestration_agents a
                 WHERE a.orchestration_id = o.id GROUP BY a.state) c) AS agents,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object('agent_id', a.id, 'name', a.name, 'state', a.state,
                                                     'waits_for', ({_WAITED_FOR})) ORDER BY a.id), '[]')
          FROM orchestration_agents a
         WHERE a.orchestration_id = o.id
           AND a.state IN ('WAITING_FOR_PARENT', 'WAITING_FOR_CHILD', 'WAITING_FOR_EXPERT')) AS waiting
  FROM orchestrations o
  JOIN orchestration_agents m ON m.id = o.master_id
  CROSS JOIN LATERAL (
      SELECT {_USED} FROM orchestration_agents a JOIN turns t ON t.thread_id = a.thread_id
       WHERE a.orchestration_id = o.id) used
 WHERE o.tenant_id = :tenant_id
"""
_GET = f"{_ORCHESTRATIONS} AND o.id = :id"
_LIST = f"""
{_ORCHESTRATIONS}
   AND (:before::text IS NULL OR o.id < :before)
   AND (:open::bool IS NULL OR (o.finished_at IS NULL) = :open)
   AND (:agent_id::text IS NULL OR o.agent_id = :agent_id)
   AND (:source::text IS NULL OR o.source = :source)
 ORDER BY o.id DESC
 LIMIT :limit
"""

_HEAD = """
SELECT o.id, o.created_at, o.finished_at,
       EXISTS (SELECT 1
                 FROM orchestration_agents a JOIN runs r ON r.id = a.run_id AND r.status = 'waiting'
                 JOIN run_waits w ON w.run_id = r.id AND w.status = 'open' AND w.kind = ANY(:kinds::text[])
                WHERE a.orchestration_id = o.id) AS asks
  FROM orchestrations o WHERE o.tenant_id = :tenant_id AND o.id = :id
"""

_TREE = f"""
SELECT a.id, a.parent_id, a.depth, a.role, a.name, a.state, a.prompt, {_MODEL_OF_AGENT}, a.cwd, a.tools, a.plugins,
       a.permission_mode, a.expert_id, a.thread_id, a.run_id, a.activations, a.summary, a.artifacts,
       {_ERROR.format(agent="a")}, a.progress, a.state_at, a.created_at, a.ended_at, used.usage,
       ({_WAITED_FOR}) AS waits_for,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                   'id', w.id, 'run_id', r.id, 'thread_id', r.thread_id, 'agent_id', r.agent_id,
                   'tool_call_id', w.tool_call_id, 'request', w.request, 'child_run_id', w.child_run_id,
                   'due_at', w.due_at, 'created_at', w.created_at) ORDER BY w.id), '[]')
          FROM runs r JOIN run_waits w ON w.run_id = r.id AND w.status = 'open' AND w.kind = ANY(:kinds::text[])
         WHERE r.id = a.run_id AND r.status = 'waiting') AS waits,
       held.hold AS held_for, held.hold_detail, held.held_since, held.held_until
  FROM orchestration_agents a
  LEFT JOIN runs held ON held.id = a.run_id AND held.hold IS NOT NULL AND held.status = 'queued'
  CROSS JOIN LATERAL (SELECT {_USED} FROM turns t WHERE t.thread_id = a.thread_id) used
 WHERE a.tenant_id = :tenant_id AND a.orchestration_id = :id
 ORDER BY a.id
"""

_MESSAGES = """
SELECT m.id, m.type, m.source_id, m.target_id, m.correlation_id, m.payload, m.created_at, m.delivered_at
  FROM orchestration_messages m
 WHERE m.tenant_id = :tenant_id AND m.orchestration_id = :id AND m.id > :after
 ORDER BY m.id
 LIMIT :limit
"""

# For an idempotency key, which is bound to the run that the request made.
_OF_RUN = """
SELECT o.id, o.master_id FROM runs r JOIN orchestrations o ON o.thread_id = r.thread_id
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
"""


@dataclass(frozen=True, slots=True)
class TreeHead:
    """When an orchestration began and ended, and whether one of its agents asks a person."""

    id: str
    created_at: datetime
    finished_at: datetime | None
    asks: bool


async def get_orchestration(connection: Connection, tenant_id: str, orchestration_id: str) -> OrchestrationView:
    """Return an orchestration.

    Raises:
        NotFound: There is no such orchestration.
    """
    row = existing(
        await connection.fetchrow(_GET, tenant_id=tenant_id, id=orchestration_id), "orchestration", orchestration_id
    )
    return _view(row)


async def list_orchestrations(
    connection: Connection,
    tenant_id: str,
    *,
    open: bool | None,
    agent_id: str | None,
    before: str | None,
    limit: int,
    source: RunSource | None = None,
) -> list[OrchestrationView]:
    """Return orchestrations, newest first, those before `before`."""
    rows = await connection.fetch(
        _LIST, tenant_id=tenant_id, open=open, agent_id=agent_id, source=source, before=before, limit=limit
    )
    return [_view(row) for row in rows]


async def tree_head(connection: Connection, tenant_id: str, orchestration_id: str) -> TreeHead:
    """Return when an orchestration began and ended, and whether one of its agents asks a person.

    Raises:
        NotFound: There is no such orchestration.
    """
    row = existing(
        await connection.fetchrow(_HEAD, tenant_id=tenant_id, id=orchestration_id, kinds=list(ANSWERABLE)),
        "orchestration",
        orchestration_id,
    )
    return TreeHead(**row)


async def get_tree(connection: Connection, tenant_id: str, orchestration_id: str) -> OrchestrationTree:
    """Return all agents of an orchestration, in the order in which they were spawned.

    Raises:
        NotFound: There is no such orchestration.
    """
    rows = await connection.fetch(_TREE, tenant_id=tenant_id, id=orchestration_id, kinds=list(ANSWERABLE))
    if not rows:
        raise missing("orchestration", orchestration_id)
    # An orchestration is inserted with its master, whose id is the lowest.
    return OrchestrationTree(id=orchestration_id, master_id=rows[0]["id"], agents=[_agent(row) for row in rows])


async def list_messages(
    connection: Connection, tenant_id: str, orchestration_id: str, *, after: str, limit: int
) -> list[OrchestrationMessageView]:
    """Return messages of an orchestration after `after`, oldest first."""
    rows = await connection.fetch(_MESSAGES, tenant_id=tenant_id, id=orchestration_id, after=after, limit=limit)
    return [OrchestrationMessageView(**row) for row in rows]


async def orchestration_of_run(connection: Connection, tenant_id: str, run_id: str) -> tuple[str, str] | None:
    """Return the orchestration whose master has this run, and the master; None if it is gone."""
    row = await connection.fetchrow(_OF_RUN, tenant_id=tenant_id, run_id=run_id)
    return None if row is None else (row["id"], row["master_id"])


def _view(row: Row) -> OrchestrationView:
    return OrchestrationView(**row, limits=read_stored(OrchestrationLimits.model_validate, row["frozen_limits"]))


def _agent(row: Row) -> TreeAgent:
    return TreeAgent(**row, hold=_hold(row))


def _hold(row: Row) -> HoldView | None:
    if row["held_for"] is None:
        return None
    detail = read_stored(HoldDetail.model_validate, row["hold_detail"])
    return HoldView.of(row["held_for"], detail, row["held_since"], row["held_until"])
