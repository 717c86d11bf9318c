"""Agents of orchestrations as they stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.ledger.database import Connection
from nova_workers.ledger.stored import read_stored

AGENT_COLUMNS = """
a.id, a.tenant_id, a.orchestration_id, a.parent_id, a.thread_id, a.run_id, a.role, a.state, a.depth, a.name, a.prompt,
a.tools, a.model, a.cwd, a.plugins, a.permission_mode, a.expert_id, a.category, a.activations, a.summary, a.artifacts,
a.error_code, a.error_message, a.progress, a.state_at, a.created_at, a.ended_at,
a.spec -> 'capabilities' AS capabilities
"""
"""The columns of a `descriptor`, of `orchestration_agents a`."""

_AGENTS = f"""
SELECT {AGENT_COLUMNS} FROM orchestration_agents a
 WHERE a.tenant_id = :tenant_id AND a.orchestration_id = :orchestration_id ORDER BY a.id
"""
_GET = f"SELECT {AGENT_COLUMNS} FROM orchestration_agents a WHERE a.tenant_id = :tenant_id AND a.id = :id"
_SPEC = "SELECT a.spec FROM orchestration_agents a WHERE a.tenant_id = :tenant_id AND a.id = :id"


async def agents_of(connection: Connection, tenant_id: str, orchestration_id: str) -> list[AgentDescriptor]:
    """Return all agents of a tree, in the order in which they were spawned."""
    rows = await connection.fetch(_AGENTS, tenant_id=tenant_id, orchestration_id=orchestration_id)
    return [descriptor(dict(row)) for row in rows]


async def get_agent(connection: Connection, tenant_id: str, agent_id: str) -> AgentDescriptor | None:
    """Return an agent of an orchestration, or None."""
    row = await connection.fetchrow(_GET, tenant_id=tenant_id, id=agent_id)
    return None if row is None else descriptor(dict(row))


async def spec_of(connection: Connection, agent: AgentDescriptor) -> AgentSpec:
    """Return the configuration that an agent's runs use."""
    stored = await connection.fetchval(_SPEC, tenant_id=agent.tenant_id, id=agent.id)
    return read_stored(AgentSpec.model_validate, stored)


def descriptor(values: Mapping[str, Any]) -> AgentDescriptor:
    """Return an agent from the values of `AGENT_COLUMNS`."""
    columns = dict(values)
    columns["tools"] = None if values["tools"] is None else tuple(values["tools"])
    columns["plugins"] = tuple(values["plugins"])
    columns["capabilities"] = {name: grant.get("tools") for name, grant in (values["capabilities"] or {}).items()}
    return AgentDescriptor(**columns)
