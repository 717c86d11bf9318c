"""Agents and the versions of their configuration. Each change is one statement: agent and version go together."""

from __future__ import annotations

from dataclasses import dataclass

from nova_workers.base.errors import Conflict, NotFound, VersionMismatch, deleted, existing
from nova_workers.base.vocabulary import OPEN_ROLLOUTS, sql_list
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.default_agents import DEFAULT_AGENTS
from nova_workers.contracts.http.wire import AgentView
from nova_workers.domain.agents.sql.former_ids import id_now, renamed
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.stored import read_stored, to_store

_MOST_LOOKED_AT = 5_000

# The newest version need not be the current one: it may be saved for a rollout.
NEXT_VERSION = """
1 + GREATEST(a.version, (SELECT max(v.version) FROM agent_versions v
                          WHERE v.tenant_id = a.tenant_id AND v.agent_id = a.id))
"""
"""The number of the next version of the agent ``a``."""

OPEN_ROLLOUT = f"""
SELECT o.id, o.version FROM rollouts o
 WHERE o.tenant_id = a.tenant_id AND o.agent_id = a.id AND o.status IN {sql_list(OPEN_ROLLOUTS)}
"""
"""The open rollout of the agent ``a``."""

# A deleted agent's id is free again. Its versions stay, since runs name them, so the new ones count on from there. A
# former id is free once the agent that was renamed is deleted.
_CREATE = f"""
WITH made AS (
    INSERT INTO agents AS a (tenant_id, id, version, spec) VALUES (:tenant_id, :agent_id, 1, :spec)
    ON CONFLICT (tenant_id, id) DO UPDATE
       SET version = {NEXT_VERSION}, spec = EXCLUDED.spec, created_at = now(), updated_at = now(), deleted_at = NULL,
           renamed_to = NULL, directory = NULL
     WHERE a.deleted_at IS NOT NULL
       AND NOT EXISTS (SELECT FROM agents n
                        WHERE n.tenant_id = a.tenant_id AND n.id = a.renamed_to AND n.deleted_at IS NULL)
    RETURNING *
), switch AS (
    DELETE FROM switches s USING made WHERE s.scope = 'rename' AND s.tenant_id = made.tenant_id AND s.target = made.id
), kept AS (
    INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
    SELECT tenant_id, id, version, spec, :created_by FROM made
)
SELECT *, :created_by AS created_by, NULL AS renamed_from FROM made
"""

# Equal configuration makes no version, so that a repeated PUT changes nothing. `expected` is the version that this
# one follows. The version that a rollout compares its candidate with stays the current one until the rollout ends.
_REPLACE = f"""
WITH changed AS (
    UPDATE agents a
       SET version = {NEXT_VERSION}, spec = :spec, updated_at = now()
     WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL AND spec <> :spec
       AND (:expected::bigint IS NULL OR version = :expected)
       AND NOT EXISTS ({OPEN_ROLLOUT})
    RETURNING *
), kept AS (
    INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
    SELECT tenant_id, id, version, spec, :created_by FROM changed
)
SELECT *, :created_by AS created_by, NULL AS renamed_from FROM changed
"""

# A version that is not current. Equal to the current or to the newest one, it is that one.
_SAVE_VERSION = f"""
INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
SELECT a.tenant_id, a.id, {NEXT_VERSION}, :spec, :created_by
  FROM agents a
 WHERE a.tenant_id = :tenant_id AND a.id = :agent_id AND a.deleted_at IS NULL AND a.spec <> :spec
   AND NOT EXISTS (SELECT FROM agent_versions n
                    WHERE n.tenant_id = a.tenant_id AND n.agent_id = a.id AND n.spec = :spec
                      AND n.version = {NEXT_VERSION} - 1)
RETURNING version
"""

_EQUAL_VERSION = """
SELECT v.version
  FROM agents a JOIN agent_versions v ON v.tenant_id = a.tenant_id AND v.agent_id = a.id AND v.version >= a.version
 WHERE a.tenant_id = :tenant_id AND a.id = :agent_id AND v.spec = :spec
 ORDER BY v.version = a.version DESC, v.version DESC
 LIMIT 1
"""

_OPEN_ROLLOUT = f"""
SELECT x.id, x.version FROM agents a CROSS JOIN LATERAL ({OPEN_ROLLOUT}) x
 WHERE a.tenant_id = :tenant_id AND a.id = :agent_id
"""

# The candidate of a rollout becomes the current version, if the one before is current still.
_PROMOTE = """
UPDATE agents a
   SET version = v.version, spec = v.spec, updated_at = now()
  FROM agent_versions v
 WHERE a.tenant_id = :tenant_id AND a.id = :agent_id AND a.deleted_at IS NULL AND a.version = :expected
   AND v.tenant_id = a.tenant_id AND v.agent_id = a.id AND v.version = :version
RETURNING a.version
"""

# A former id has no versions.
_GET = """
SELECT a.*, v.created_by, v.renamed_from
  FROM agents a
  LEFT JOIN agent_versions v ON v.tenant_id = a.tenant_id AND v.agent_id = a.id AND v.version = a.version
 WHERE a.tenant_id = :tenant_id AND a.id = :agent_id
"""

_DIRECTORY = """
SELECT directory FROM agents
 WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL AND renamed_to IS NULL
"""

# Locks the row for a read and a later change: of two concurrent changes neither is lost.
_LOCK = "SELECT 1 FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id FOR NO KEY UPDATE"

_LIST = """
SELECT a.*, v.created_by, v.renamed_from
  FROM agents a
  JOIN agent_versions v ON v.tenant_id = a.tenant_id AND v.agent_id = a.id AND v.version = a.version
 WHERE a.tenant_id = :tenant_id AND a.deleted_at IS NULL AND (:after::text IS NULL OR a.id > :after)
 ORDER BY a.id
 LIMIT :limit
"""

_SPECS = "SELECT id, spec FROM agents WHERE tenant_id = :tenant_id AND deleted_at IS NULL AND renamed_to IS NULL"

_COUNT = "SELECT count(*) FROM agents WHERE tenant_id = :tenant_id AND deleted_at IS NULL"

# With the agent goes all that would start it by itself or hold it back: its id may be taken by another agent, which
# must not inherit triggers, work on tasks or a pause. Tasks are parked until they have another owner.
_DELETE = f"""
WITH gone AS (
    UPDATE agents SET deleted_at = now() WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL
    RETURNING tenant_id, id
), triggers AS (
    UPDATE triggers t SET deleted_at = now(), updated_at = now(), next_slot_at = NULL, next_fire_at = NULL
      FROM gone
     WHERE t.tenant_id = gone.tenant_id AND t.agent_id = gone.id AND t.deleted_at IS NULL
), tasks AS (
    UPDATE tasks k
       SET parked_reason = format('Agent ''%s'', who owns task %s, was deleted.', gone.id, k.id), work_at = NULL
      FROM gone
     WHERE k.tenant_id = gone.tenant_id AND k.owner_agent_id = gone.id AND k.status = 'active'
), switch AS (
    DELETE FROM switches s USING gone WHERE s.scope = 'agent' AND s.tenant_id = gone.tenant_id AND s.target = gone.id
), sampling AS (
    DELETE FROM samplings s USING gone WHERE s.tenant_id = gone.tenant_id AND s.agent_id = gone.id
), rollout AS (
    UPDATE rollouts o
       SET status = 'stopped', reason = 'The agent was deleted.', ended_at = now(), updated_at = now(),
           step_ends_at = NULL
      FROM gone
     WHERE o.tenant_id = gone.tenant_id AND o.agent_id = gone.id AND o.status IN {sql_list(OPEN_ROLLOUTS)}
)
SELECT id FROM gone
"""

_VERSION = """
SELECT agent_id AS id, version, spec, created_by, renamed_from, created_at, created_at AS updated_at
  FROM agent_versions
 WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND version = :version::bigint
"""

_LIST_VERSIONS = """
SELECT agent_id AS id, version, spec, created_by, renamed_from, created_at, created_at AS updated_at
  FROM agent_versions
 WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND (:before::int IS NULL OR version < :before)
 ORDER BY version DESC
 LIMIT :limit
"""

# Any agents will do, so the bound needs no order.
_PARTS = f"""
WITH looked_at AS MATERIALIZED (
    SELECT spec FROM agents WHERE deleted_at IS NULL AND renamed_to IS NULL LIMIT {_MOST_LOOKED_AT}
)
SELECT ARRAY (SELECT DISTINCT spec ->> 'engine' FROM looked_at WHERE spec ->> 'engine' IS NOT NULL) AS engines,
       ARRAY (SELECT DISTINCT jsonb_object_keys(spec -> 'capabilities') FROM looked_at) AS capabilities
"""

_SEED = """
WITH made AS (
    INSERT INTO agents (tenant_id, id, version, spec)
    SELECT :tenant_id, x.id, 1, x.spec FROM jsonb_to_recordset(:rows) AS x(id text, spec jsonb)
    ON CONFLICT (tenant_id, id) DO NOTHING
    RETURNING *
)
INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
SELECT tenant_id, id, version, spec, 'seed' FROM made
"""


@dataclass(frozen=True, slots=True)
class PartsInUse:
    """Names of what agents have: engines, as far as agents name one, and capabilities."""

    engines: frozenset[str]
    capabilities: frozenset[str]


async def parts_in_use(connection: Connection) -> PartsInUse:
    """Return the parts that the agents of all tenants use; in a very large fleet, those of some thousands of them."""
    row = await connection.fetchrow(_PARTS)
    return PartsInUse(
        frozenset(() if row is None else row["engines"]), frozenset(() if row is None else row["capabilities"])
    )


async def create_agent(
    connection: Connection, tenant_id: str, agent_id: str, spec: AgentSpec, *, created_by: str
) -> AgentView:
    """Make an agent and its first version.

    Raises:
        Conflict: The id is taken.
    """
    row = await connection.fetchrow(
        _CREATE, tenant_id=tenant_id, agent_id=agent_id, spec=_json(spec), created_by=created_by
    )
    if row is None:
        to_id = await id_now(connection, tenant_id, agent_id)
        raise Conflict(
            f"There is an agent {agent_id!r} already; choose another id, or change that one."
            if to_id is None
            else f"{agent_id!r} is a former id of agent {to_id!r} and stays reserved for it; choose another id.",
            agent_id=agent_id,
        )
    return _view(row)


async def replace_agent(
    connection: Connection,
    tenant_id: str,
    agent_id: str,
    spec: AgentSpec,
    *,
    created_by: str,
    expected: int | None = None,
) -> AgentView:
    """Give an agent a new configuration, as its next version, which is the current one. An equal one changes nothing.

    Args:
        connection: Where.
        tenant_id: Whose agent.
        spec: The whole configuration.
        created_by: ``person``, or the id of an agent.
        expected: The version that this one is to follow; None follows whichever is the newest.

    Raises:
        NotFound: There is no such agent.
        Gone: It was deleted.
        VersionMismatch: Its newest version is not the one that was expected.
        Conflict: It has an open rollout.
    """
    row = await connection.fetchrow(
        _REPLACE, tenant_id=tenant_id, agent_id=agent_id, spec=_json(spec), created_by=created_by, expected=expected
    )
    if row is not None:
        return _view(row)
    agent = await get_agent(connection, tenant_id, agent_id)
    expect_version(agent, expected)
    if _json(agent.spec) != _json(spec):
        await require_no_rollout(connection, tenant_id, agent_id)
    return agent


async def require_no_rollout(connection: Connection, tenant_id: str, agent_id: str) -> None:
    """Refuse to change what an open rollout compares its candidate with.

    Raises:
        Conflict: The agent has an open rollout.
    """
    row = await connection.fetchrow(_OPEN_ROLLOUT, tenant_id=tenant_id, agent_id=agent_id)
    if row is not None:
        raise Conflict(
            f"Version {row['version']} of agent {agent_id!r} is being rolled out, and compared with the current one. "
            "Stop the rollout first, or save a version that is not current.",
            agent_id=agent_id,
            rollout_id=row["id"],
        )


async def save_version(
    connection: Connection, tenant_id: str, agent_id: str, spec: AgentSpec, *, created_by: str
) -> AgentView:
    """Save the next version of a locked agent, without making it the current one. An equal one changes nothing.

    Raises:
        NotFound: There is no such agent.
        Gone: It was deleted.
    """
    values: dict[str, object] = {"tenant_id": tenant_id, "agent_id": agent_id, "spec": _json(spec)}
    version = await connection.fetchval(_SAVE_VERSION, **values, created_by=created_by)
    if version is None:
        version = await connection.fetchval(_EQUAL_VERSION, **values)
    return await get_version(connection, tenant_id, agent_id, version)


async def promote_version(
    connection: Connection, tenant_id: str, agent_id: str, version: int, *, expected: int
) -> bool:
    """Make a version the current one, if `expected` is that still. Return whether it was."""
    promoted = await connection.fetchval(
        _PROMOTE, tenant_id=tenant_id, agent_id=agent_id, version=version, expected=expected
    )
    return promoted is not None


def expect_version(agent: AgentView, expected: int | None) -> None:
    """Refuse an agent that was changed since a version. None expects nothing.

    Raises:
        VersionMismatch: Its version is another; the message names both.
    """
    if expected is not None and agent.version != expected:
        raise VersionMismatch(
            f"Agent {agent.id!r} is at version {agent.version} and not at {expected}. Read it again, then change it.",
            agent_id=agent.id,
            version=agent.version,
            expected=expected,
        )


async def get_agent(connection: Connection, tenant_id: str, agent_id: str) -> AgentView:
    """Return an agent.

    Raises:
        NotFound: There is no such agent.
        Gone: It was deleted.
        AgentRenamed: It is a former id.
    """
    row = existing(await connection.fetchrow(_GET, tenant_id=tenant_id, agent_id=agent_id), "agent", agent_id)
    if row["renamed_to"] is not None:
        raise renamed(agent_id, row["renamed_to"])
    if row["deleted_at"] is not None:
        raise deleted("agent", agent_id)
    return _view(row)


async def get_directory(connection: Connection, tenant_id: str, agent_id: str) -> str:
    """Return the name of an agent's directory, which keeps the agent's first id; of no agent, that of a new one."""
    found: str | None = await connection.fetchval(_DIRECTORY, tenant_id=tenant_id, agent_id=agent_id)
    return found or agent_id


async def lock_agent(connection: Connection, tenant_id: str, agent_id: str) -> AgentView:
    """Return an agent, locked until the transaction ends.

    Raises:
        NotFound: There is no such agent.
        Gone: It was deleted.
    """
    await connection.execute(_LOCK, tenant_id=tenant_id, agent_id=agent_id)
    return await get_agent(connection, tenant_id, agent_id)


async def list_agents(connection: Connection, tenant_id: str, *, after: str | None, limit: int) -> list[AgentView]:
    """Return agents by id, those after `after`."""
    return [_view(row) for row in await connection.fetch(_LIST, tenant_id=tenant_id, after=after, limit=limit)]


async def live_specs(connection: Connection, tenant_id: str) -> dict[str, AgentSpec]:
    """Return the configurations of all agents of a tenant, by their ids."""
    rows = await connection.fetch(_SPECS, tenant_id=tenant_id)
    return {row["id"]: read_stored(AgentSpec.model_validate, row["spec"]) for row in rows}


async def count_agents(connection: Connection, tenant_id: str) -> int:
    """Return how many agents a tenant has."""
    return await connection.fetchval(_COUNT, tenant_id=tenant_id)


async def delete_agent(connection: Connection, tenant_id: str, agent_id: str) -> None:
    """Delete an agent, its triggers and its pause; park its tasks. Its versions, threads and runs stay readable.

    Raises:
        NotFound: There is no such agent.
        Gone: It was deleted before.
    """
    if await connection.fetchval(_DELETE, tenant_id=tenant_id, agent_id=agent_id) is None:
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
    rows = await connection.fetch(_LIST_VERSIONS, tenant_id=tenant_id, agent_id=agent_id, before=before, limit=limit)
    return [_view(row) for row in rows]


async def get_version(connection: Connection, tenant_id: str, agent_id: str, version: int) -> AgentView:
    """Return a version of an agent.

    Raises:
        NotFound: There is no such agent, or it never had that version.
        Gone: It was deleted.
    """
    agent = await get_agent(connection, tenant_id, agent_id)
    row = await connection.fetchrow(_VERSION, tenant_id=tenant_id, agent_id=agent_id, version=version)
    if row is None:
        raise NotFound(
            f"Agent {agent_id!r} has no version {version}; its newest is {agent.version}.",
            kind="agent_version",
            id=version,
            agent_id=agent_id,
        )
    return _view(row)


async def seed_defaults(connection: Connection, tenant_id: str) -> None:
    """Give a tenant the default agents. Those that it has, changed or deleted are left as they are."""
    rows = [{"id": agent_id, "spec": _json(spec)} for agent_id, spec in DEFAULT_AGENTS.items()]
    await connection.execute(_SEED, tenant_id=tenant_id, rows=rows)


def _json(spec: AgentSpec) -> dict[str, object]:
    # By the base class's fields: a request's `id` is not part of the configuration.
    return to_store(AgentSpec, spec)


def _view(row: Row) -> AgentView:
    return AgentView.model_validate({**row, "spec": read_stored(AgentSpec.model_validate, row["spec"])})
