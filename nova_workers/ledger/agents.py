"""Agents and the versions of their configuration. Each change is one statement: agent and version go together."""

from __future__ import annotations

from collections.abc import Mapping

from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.wire import AgentView
from nova_workers.errors import Conflict, Gone, NotFound
from nova_workers.ledger.database import Connection, Row

__all__ = [
    "DEFAULT_AGENTS",
    "create_agent",
    "delete_agent",
    "get_agent",
    "list_agents",
    "list_versions",
    "replace_agent",
    "rollback_agent",
    "seed_defaults",
]

DEFAULT_AGENTS: Mapping[str, AgentSpec] = {
    "nova": AgentSpec(
        name="Nova",
        description="A general assistant with files, the web and a memory.",
        identity="You are Nova, a capable and plain-spoken assistant.",
        instructions=(
            "Answer briefly and to the point. Use your tools where they help, and say what you did. "
            "Save facts that will matter in later conversations to memory, and look there before you ask again."
        ),
        trust="controlled",
        capabilities={"memory": CapabilityGrant()},
    ),
    "agent-builder": AgentSpec(
        name="Agent Builder",
        description="Helps to design other agents.",
        identity="You design agents: you turn what somebody needs into a clear configuration.",
        instructions=(
            "Ask what the agent is for, what it must never do and what it needs to know. Then propose a name, an "
            "identity, instructions, responsibilities and the lowest trust level that does the job."
        ),
        trust="sandbox",
    ),
}
"""What every new tenant starts with."""

_COLUMNS = "id, version, spec, created_at, updated_at"

# A deleted agent's id is free again. Its versions stay, since runs name them, so the new ones count on from there.
_CREATE = f"""
WITH made AS (
    INSERT INTO agents AS a (tenant_id, id, version, spec) VALUES ($1, $2, 1, $3)
    ON CONFLICT (tenant_id, id) DO UPDATE
       SET version = a.version + 1, spec = EXCLUDED.spec, created_at = now(), updated_at = now(), deleted_at = NULL
     WHERE a.deleted_at IS NOT NULL
    RETURNING *
), kept AS (
    INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
    SELECT tenant_id, id, version, spec, $4 FROM made
)
SELECT {_COLUMNS} FROM made
"""

# Equal configuration makes no version, so that a repeated PUT changes nothing.
_REPLACE = f"""
WITH changed AS (
    UPDATE agents
       SET version = version + 1, spec = $3, updated_at = now()
     WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL AND spec <> $3
    RETURNING *
), kept AS (
    INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
    SELECT tenant_id, id, version, spec, $4 FROM changed
)
SELECT {_COLUMNS} FROM changed
UNION ALL
SELECT {_COLUMNS} FROM agents
 WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM changed)
"""

_GET = "SELECT *, deleted_at IS NOT NULL AS deleted FROM agents WHERE tenant_id = $1 AND id = $2"

_LIST = f"""
SELECT {_COLUMNS} FROM agents
 WHERE tenant_id = $1 AND deleted_at IS NULL AND ($2::text IS NULL OR id > $2)
 ORDER BY id
 LIMIT $3
"""

_DELETE = """
UPDATE agents SET deleted_at = now() WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL RETURNING id
"""

_VERSION = "SELECT spec FROM agent_versions WHERE tenant_id = $1 AND agent_id = $2 AND version = $3"

_LIST_VERSIONS = """
SELECT agent_id AS id, version, spec, created_at, created_at AS updated_at FROM agent_versions
 WHERE tenant_id = $1 AND agent_id = $2 AND ($3::int IS NULL OR version < $3)
 ORDER BY version DESC
 LIMIT $4
"""

_SEED = """
WITH made AS (
    INSERT INTO agents (tenant_id, id, version, spec)
    SELECT $1, x.id, 1, x.spec FROM jsonb_to_recordset($2) AS x(id text, spec jsonb)
    ON CONFLICT (tenant_id, id) DO NOTHING
    RETURNING *
)
INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
SELECT tenant_id, id, version, spec, 'seed' FROM made
"""


async def create_agent(
    connection: Connection, tenant_id: str, agent_id: str, spec: AgentSpec, *, created_by: str = "api"
) -> AgentView:
    """Make an agent and its first version.

    Raises:
        Conflict: The id is taken.
    """
    row = await connection.fetchrow(_CREATE, tenant_id, agent_id, _json(spec), created_by)
    if row is None:
        raise Conflict(
            f"There is an agent {agent_id!r} already; choose another id, or replace it with PUT.", agent_id=agent_id
        )
    return _view(row)


async def replace_agent(
    connection: Connection, tenant_id: str, agent_id: str, spec: AgentSpec, *, created_by: str = "api"
) -> AgentView:
    """Give an agent a new configuration, as its next version. An equal one changes nothing.

    Raises:
        NotFound: There is no such agent.
        Gone: It was deleted.
    """
    row = await connection.fetchrow(_REPLACE, tenant_id, agent_id, _json(spec), created_by)
    return await get_agent(connection, tenant_id, agent_id) if row is None else _view(row)


async def get_agent(connection: Connection, tenant_id: str, agent_id: str) -> AgentView:
    """Return an agent as it stands.

    Raises:
        NotFound: There is no such agent.
        Gone: It was deleted.
    """
    row = await connection.fetchrow(_GET, tenant_id, agent_id)
    if row is None:
        raise NotFound(f"There is no agent {agent_id!r}.", agent_id=agent_id)
    if row["deleted"]:
        raise Gone(f"Agent {agent_id!r} was deleted.", agent_id=agent_id)
    return _view(row)


async def list_agents(connection: Connection, tenant_id: str, *, after: str | None, limit: int) -> list[AgentView]:
    """Return agents by id, those after `after`."""
    return [_view(row) for row in await connection.fetch(_LIST, tenant_id, after, limit)]


async def delete_agent(connection: Connection, tenant_id: str, agent_id: str) -> None:
    """Delete an agent. Its versions, threads and runs stay readable.

    Raises:
        NotFound: There is no such agent.
        Gone: It was deleted before.
    """
    if await connection.fetchval(_DELETE, tenant_id, agent_id) is None:
        await get_agent(connection, tenant_id, agent_id)


async def list_versions(
    connection: Connection, tenant_id: str, agent_id: str, *, before: int | None, limit: int
) -> list[AgentView]:
    """Return versions of an agent, newest first, those before `before`.

    Raises:
        NotFound: There is no such agent.
        Gone: It was deleted.
    """
    await get_agent(connection, tenant_id, agent_id)
    rows = await connection.fetch(_LIST_VERSIONS, tenant_id, agent_id, before, limit)
    return [_view(row) for row in rows]


async def rollback_agent(connection: Connection, tenant_id: str, agent_id: str, version: int) -> AgentView:
    """Make an earlier version's configuration the newest again, as a version of its own.

    Raises:
        NotFound: There is no such agent, or it never had that version.
        Gone: It was deleted.
    """
    spec = await connection.fetchval(_VERSION, tenant_id, agent_id, version)
    if spec is None:
        agent = await get_agent(connection, tenant_id, agent_id)
        raise NotFound(
            f"Agent {agent_id!r} has no version {version}; its newest is {agent.version}.",
            agent_id=agent_id,
            version=version,
        )
    return await replace_agent(connection, tenant_id, agent_id, AgentSpec.model_validate(spec))


async def seed_defaults(connection: Connection, tenant_id: str) -> None:
    """Give a tenant the default agents. Those that it has, changed or deleted are left as they are."""
    rows = [{"id": agent_id, "spec": _json(spec)} for agent_id, spec in DEFAULT_AGENTS.items()]
    await connection.execute(_SEED, tenant_id, rows)


def _json(spec: AgentSpec) -> dict[str, object]:
    # By the base class's fields: a request's `id` is not part of the configuration.
    return AgentSpec.model_dump(spec, mode="json", include=set(AgentSpec.model_fields))


def _view(row: Row) -> AgentView:
    return AgentView(
        id=row["id"],
        version=row["version"],
        spec=AgentSpec.model_validate(row["spec"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
