"""Renaming an agent, first half: one transaction gives the new id to the agent. See `moves` for what follows.

The former id keeps its row in `agents`, deleted and with `renamed_to`, so that every statement that asks for an agent
that is not deleted refuses it, and its error can name the new id. Two switches of the scope ``rename`` hold back runs:
that of the new id until the rows have moved, that of the former id for as long as it is one, so that a run that a
concurrent transaction still inserts under it waits until it is moved too.
"""

from __future__ import annotations

from dataclasses import dataclass

from nova_workers.base.errors import Conflict
from nova_workers.domain.agents.sql.records import NEXT_VERSION
from nova_workers.ledger.database import Connection, Row

_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('nova renames ' || :tenant_id, 0))"

_FIND = """
SELECT deleted_at IS NULL AS lives, renamed_to FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id
"""

_RUNNING = """
SELECT id FROM runs WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND status = 'running' ORDER BY id LIMIT 20
"""

# The new id is free, or a former id of the same agent. The version records the rename. Generated columns follow `spec`.
_TAKE_ID = f"""
INSERT INTO agents AS a (tenant_id, id, version, spec, directory, created_at)
SELECT a.tenant_id, :to_id, {NEXT_VERSION}, a.spec, NULLIF(COALESCE(a.directory, a.id), :to_id), a.created_at
  FROM agents a WHERE a.tenant_id = :tenant_id AND a.id = :agent_id
ON CONFLICT (tenant_id, id) DO UPDATE
   SET version = EXCLUDED.version, spec = EXCLUDED.spec, directory = EXCLUDED.directory,
       created_at = EXCLUDED.created_at, updated_at = now(), deleted_at = NULL, renamed_to = NULL
 WHERE a.renamed_to = :agent_id
RETURNING id
"""
# The former row keeps no configuration. Earlier former ids name the newest id, so that one lookup resolves them.
_LEAVE_ID = """
UPDATE agents
   SET renamed_to = :to_id, deleted_at = COALESCE(deleted_at, now()), directory = NULL,
       spec = jsonb_build_object('name', spec -> 'name')
 WHERE tenant_id = :tenant_id AND id <> :to_id AND (id = :agent_id OR renamed_to = :agent_id)
"""
# An import may have added versions to a former id.
_DROP_VERSIONS = "DELETE FROM agent_versions WHERE tenant_id = :tenant_id AND agent_id = :to_id"
_MOVE_VERSIONS = """
UPDATE agent_versions SET agent_id = :to_id WHERE tenant_id = :tenant_id AND agent_id = :agent_id
"""
_ADD_VERSION = """
INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by, renamed_from)
SELECT tenant_id, id, version, spec, :created_by, :agent_id FROM agents WHERE tenant_id = :tenant_id AND id = :to_id
"""

_HOLD_BACK = """
INSERT INTO switches (scope, tenant_id, target)
SELECT 'rename', :tenant_id, target FROM unnest(ARRAY[:agent_id, :to_id]) AS target
ON CONFLICT (scope, tenant_id, target) DO UPDATE SET created_at = now()
"""

# What names the agent as one that is to act, or as the one that is meant: it must hold from the first moment.
_TRIGGERS = "UPDATE triggers SET agent_id = :to_id WHERE tenant_id = :tenant_id AND agent_id = :agent_id"
_TASKS = "UPDATE tasks SET owner_agent_id = :to_id WHERE tenant_id = :tenant_id AND owner_agent_id = :agent_id"
_WEBHOOKS = "UPDATE webhooks SET agent_id = :to_id WHERE tenant_id = :tenant_id AND agent_id = :agent_id"
_ORCHESTRATIONS = "UPDATE orchestrations SET agent_id = :to_id WHERE tenant_id = :tenant_id AND agent_id = :agent_id"
_PAUSE = "UPDATE switches SET target = :to_id WHERE scope = 'agent' AND tenant_id = :tenant_id AND target = :agent_id"
# The walk of retention over the agent's threads begins anew.
_CURSOR = "DELETE FROM upkeep_cursors WHERE tenant_id = :tenant_id AND work = 'threads' AND target = :agent_id"
_ASKED_WAITS = """
UPDATE run_waits SET request = jsonb_set(request, '{agent_id}', to_jsonb(:to_id::text))
 WHERE tenant_id = :tenant_id AND status = 'open' AND request ->> 'agent_id' = :agent_id
"""
_ESCALATIONS = """
UPDATE run_waits SET request = jsonb_set(request, '{escalate_to}', to_jsonb(:to_id::text))
 WHERE tenant_id = :tenant_id AND status = 'open' AND request ->> 'escalate_to' = :agent_id
"""
_RUN_LISTS = """
UPDATE run_lists SET query = jsonb_set(query, '{agent_id}', to_jsonb(:to_id::text))
 WHERE tenant_id = :tenant_id AND query ->> 'agent_id' = :agent_id
"""
_ROLLOUTS = "UPDATE rollouts SET agent_id = :to_id WHERE tenant_id = :tenant_id AND agent_id = :agent_id"
_AT_ONCE = (_TRIGGERS, _ROLLOUTS, _TASKS, _WEBHOOKS, _ORCHESTRATIONS, _PAUSE, _ASKED_WAITS, _ESCALATIONS, _RUN_LISTS)

# Agents that may ask the renamed one get a version that names it by its new id.
_GRANTS = f"""
WITH changed AS (
    UPDATE agents a
       SET version = {NEXT_VERSION}, updated_at = now(),
           spec = jsonb_set(spec, '{{capabilities,agents,config,may_ask}}', (
               SELECT jsonb_agg(CASE WHEN named = :agent_id THEN :to_id ELSE named END ORDER BY place)
                 FROM jsonb_array_elements_text(spec #> '{{capabilities,agents,config,may_ask}}')
                      WITH ORDINALITY AS x (named, place)))
     WHERE tenant_id = :tenant_id AND deleted_at IS NULL
       AND spec #> '{{capabilities,agents,config,may_ask}}' ? :agent_id
    RETURNING *
)
INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
SELECT tenant_id, id, version, spec, :created_by FROM changed
"""

_RENAMES = """
SELECT a.tenant_id, a.id AS from_id, a.renamed_to AS to_id,
       EXISTS (SELECT FROM switches m
                WHERE m.scope = 'rename' AND m.tenant_id = a.tenant_id AND m.target = a.renamed_to) AS moving
  FROM switches s JOIN agents a ON a.tenant_id = s.tenant_id AND a.id = s.target
 WHERE s.scope = 'rename' AND a.renamed_to IS NOT NULL
   AND (:tenant_id::text IS NULL OR (a.tenant_id = :tenant_id AND a.id = :agent_id))
 ORDER BY s.created_at
"""

_IS_MOVING = """
SELECT EXISTS (SELECT FROM switches WHERE scope = 'rename' AND tenant_id = :tenant_id AND target = :agent_id)
"""


@dataclass(frozen=True, slots=True)
class Rename:
    """A former id of an agent, and its id now.

    Attributes:
        moving: Whether rows are still to be moved, and no run starts until then.
    """

    tenant_id: str
    from_id: str
    to_id: str
    moving: bool = True


async def lock_renames(connection: Connection, tenant_id: str) -> None:
    """Serialize a tenant's renames until the transaction ends. Before the agent's lock: each changes several agents."""
    await connection.execute(_ALONE, tenant_id=tenant_id)


async def begin_rename(connection: Connection, rename: Rename, *, created_by: str) -> None:
    """Give the new id to an agent, under `lock_renames` and the lock of the agent. Must be called in a transaction.

    Raises:
        Conflict: The new id is taken, or was another agent's; the agent is being renamed; or it has running runs.
    """
    ids = {"tenant_id": rename.tenant_id, "agent_id": rename.from_id, "to_id": rename.to_id}
    await require_settled(connection, rename.tenant_id, rename.from_id)
    await _require_idle(connection, rename)
    if await connection.fetchval(_TAKE_ID, **ids) is None:
        taken = await connection.fetchrow(_FIND, tenant_id=rename.tenant_id, agent_id=rename.to_id)
        raise _taken(rename.to_id, taken)
    await connection.execute(_DROP_VERSIONS, tenant_id=rename.tenant_id, to_id=rename.to_id)
    await connection.execute(_MOVE_VERSIONS, **ids)
    await connection.execute(_ADD_VERSION, **ids, created_by=created_by)
    await connection.execute(_LEAVE_ID, **ids)
    for statement in _AT_ONCE:
        await connection.execute(statement, **ids)
    await connection.execute(_CURSOR, tenant_id=rename.tenant_id, agent_id=rename.from_id)
    await connection.execute(_GRANTS, **ids, created_by=created_by)
    await connection.execute(_HOLD_BACK, **ids)


async def find_renames(connection: Connection) -> list[Rename]:
    """Return all former ids, those of the oldest renames first."""
    return [_rename(row) for row in await connection.fetch(_RENAMES, tenant_id=None, agent_id=None)]


async def rename_of(connection: Connection, tenant_id: str, agent_id: str) -> Rename | None:
    """Return the rename of a former id. None for an id that is not a former one."""
    row = await connection.fetchrow(_RENAMES, tenant_id=tenant_id, agent_id=agent_id)
    return None if row is None else _rename(row)


async def is_moving(connection: Connection, tenant_id: str, agent_id: str) -> bool:
    """Return whether an agent is being renamed, by its new id."""
    return await connection.fetchval(_IS_MOVING, tenant_id=tenant_id, agent_id=agent_id)


async def require_settled(connection: Connection, tenant_id: str, agent_id: str) -> None:
    """Refuse an agent that is being renamed.

    Raises:
        Conflict: It is.
    """
    if await is_moving(connection, tenant_id, agent_id):
        raise Conflict(
            f"Agent {agent_id!r} is being renamed: its history is on the way to this id. Try again when that is done.",
            agent_id=agent_id,
        )


async def _require_idle(connection: Connection, rename: Rename) -> None:
    rows = await connection.fetch(_RUNNING, tenant_id=rename.tenant_id, agent_id=rename.from_id)
    if rows:
        run_ids = [row["id"] for row in rows]
        raise Conflict(
            f"Agent {rename.from_id!r} has running runs: {', '.join(run_ids)}. Wait until they end, or cancel them.",
            agent_id=rename.from_id,
            run_ids=run_ids,
        )


def _taken(agent_id: str, row: Row | None) -> Conflict:
    why = "There is an agent"
    if row is not None and row["renamed_to"] is not None:
        why = f"A former id of agent {row['renamed_to']!r} is"
    elif row is not None and not row["lives"]:
        why = "Versions and runs of a deleted agent are kept under"
    return Conflict(f"{why} {agent_id!r}; choose another id.", agent_id=agent_id)


def _rename(row: Row) -> Rename:
    return Rename(row["tenant_id"], row["from_id"], row["to_id"], row["moving"])
