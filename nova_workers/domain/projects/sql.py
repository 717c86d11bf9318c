"""What belongs to which project, and what a project says now of the things that it contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova_workers.base.vocabulary import ProjectItemKind
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.projects import ProjectItemView, ProjectView
from nova_workers.ledger.database import Connection
from nova_workers.ledger.stored import read_stored

# Applies of one project take turns: each reads the whole project, and writes by what it read.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('nova project ' || :tenant_id || ' ' || :project, 0))"

_LABELS = """
SELECT kind, name, resource_id, applied FROM project_items
 WHERE tenant_id = :tenant_id AND project = :project
 ORDER BY kind, name
"""

# A thing belongs to one project.
_OWNERS = """
SELECT p.kind, p.resource_id, p.project
  FROM unnest(:kinds::text[], :ids::text[]) AS x (kind, id)
  JOIN project_items p ON p.tenant_id = :tenant_id AND p.kind = x.kind AND p.resource_id = x.id
 WHERE p.project <> :project
 ORDER BY p.kind, p.resource_id
"""

_SAVE = """
INSERT INTO project_items AS i (tenant_id, project, kind, name, resource_id, applied)
SELECT :tenant_id, :project, x.kind, x.name, x.resource_id, x.applied
  FROM jsonb_to_recordset(:rows) AS x (kind text, name text, resource_id text, applied jsonb)
ON CONFLICT (tenant_id, project, kind, name) DO UPDATE
   SET resource_id = EXCLUDED.resource_id, applied = EXCLUDED.applied, applied_at = now()
"""

_FORGET = """
DELETE FROM project_items i USING unnest(:kinds::text[], :names::text[]) AS x (kind, name)
 WHERE i.tenant_id = :tenant_id AND i.project = :project AND i.kind = x.kind AND i.name = x.name
"""

# A former id has a row, so that a project that still uses it is given the id of today.
_AGENTS = """
SELECT id, version, spec, renamed_to FROM agents
 WHERE tenant_id = :tenant_id AND id = ANY(:ids::text[]) AND (deleted_at IS NULL OR renamed_to IS NOT NULL)
 ORDER BY id
"""
# In one order, before any other lock of an apply.
_LOCK_AGENTS = """
SELECT id FROM agents WHERE tenant_id = :tenant_id AND id = ANY(:ids::text[]) ORDER BY id FOR NO KEY UPDATE
"""

_SKILLS = """
SELECT s.name, s.skill_md,
       COALESCE((SELECT jsonb_object_agg(f.path, encode(sha256(f.content), 'hex')
                                                 || CASE WHEN f.executable THEN ' executable' ELSE '' END)
                   FROM skill_files f WHERE f.tenant_id = s.tenant_id AND f.skill_name = s.name), '{}') AS files
  FROM skills s
 WHERE s.tenant_id = :tenant_id AND s.name = ANY(:names::text[])
 ORDER BY s.name
"""

_LIST = """
SELECT project, count(*) FILTER (WHERE kind = 'agent') AS agents, count(*) FILTER (WHERE kind = 'skill') AS skills,
       count(*) FILTER (WHERE kind = 'trigger') AS triggers, max(applied_at) AS applied_at
  FROM project_items
 WHERE tenant_id = :tenant_id AND (:after::text IS NULL OR project > :after)
 GROUP BY project
 ORDER BY project
 LIMIT :limit
"""

_ITEMS = """
SELECT kind, name, resource_id, applied_at FROM project_items
 WHERE tenant_id = :tenant_id AND project = :project
   AND (:after_kind::text IS NULL OR (kind, name) > (:after_kind, :after_name))
 ORDER BY kind, name
 LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class Label:
    """That a thing belongs to a project, and what the project said of it when it was last applied."""

    kind: ProjectItemKind
    name: str
    resource_id: str
    applied: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentNow:
    """An agent, or a former id of one.

    Attributes:
        spec: None for a former id.
        renamed_to: The id of the agent now, for a former one.
    """

    id: str
    version: int
    spec: AgentSpec | None
    renamed_to: str | None


@dataclass(frozen=True, slots=True)
class SkillNow:
    """A skill.

    Attributes:
        files: The SHA-256 of each file in hexadecimal, with ``executable`` behind it where it is, by path.
    """

    name: str
    skill_md: str
    files: dict[str, str]


async def lock_project(connection: Connection, tenant_id: str, project: str) -> None:
    """Serialize the applies of a project until the transaction ends."""
    await connection.execute(_ALONE, tenant_id=tenant_id, project=project)


async def labels_of(connection: Connection, tenant_id: str, project: str) -> list[Label]:
    """Return the labels of a project."""
    return [Label(**row) for row in await connection.fetch(_LABELS, tenant_id=tenant_id, project=project)]


async def other_owners(
    connection: Connection, tenant_id: str, project: str, things: Sequence[tuple[ProjectItemKind, str]]
) -> dict[tuple[ProjectItemKind, str], str]:
    """Return the other projects to which things belong, by kind and id."""
    rows = await connection.fetch(
        _OWNERS,
        tenant_id=tenant_id,
        project=project,
        kinds=[kind for kind, _ in things],
        ids=[thing_id for _, thing_id in things],
    )
    return {(row["kind"], row["resource_id"]): row["project"] for row in rows}


async def save_labels(connection: Connection, tenant_id: str, project: str, labels: Sequence[Label]) -> None:
    """Keep what a project said of its things. Call it in the transaction that writes them."""
    rows = [
        {"kind": each.kind, "name": each.name, "resource_id": each.resource_id, "applied": each.applied}
        for each in labels
    ]
    if rows:
        await connection.execute(_SAVE, tenant_id=tenant_id, project=project, rows=rows)


async def forget_labels(
    connection: Connection, tenant_id: str, project: str, names: Sequence[tuple[ProjectItemKind, str]]
) -> None:
    """Let things belong to the project no longer."""
    if names:
        await connection.execute(
            _FORGET,
            tenant_id=tenant_id,
            project=project,
            kinds=[kind for kind, _ in names],
            names=[name for _, name in names],
        )


async def agents_now(connection: Connection, tenant_id: str, ids: Sequence[str]) -> list[AgentNow]:
    """Return those of some agents that exist, and those ids that are former ones."""
    rows = await connection.fetch(_AGENTS, tenant_id=tenant_id, ids=ids)
    return [
        AgentNow(
            row["id"],
            row["version"],
            None if row["renamed_to"] else read_stored(AgentSpec.model_validate, row["spec"]),
            row["renamed_to"],
        )
        for row in rows
    ]


async def lock_agents(connection: Connection, tenant_id: str, ids: Sequence[str]) -> None:
    """Lock agents until the transaction ends."""
    await connection.execute(_LOCK_AGENTS, tenant_id=tenant_id, ids=ids)


async def skills_now(connection: Connection, tenant_id: str, names: Sequence[str]) -> list[SkillNow]:
    """Return those of some skills that exist."""
    return [SkillNow(**row) for row in await connection.fetch(_SKILLS, tenant_id=tenant_id, names=names)]


async def list_projects(connection: Connection, tenant_id: str, *, after: str | None, limit: int) -> list[ProjectView]:
    """Return projects by name, those after `after`."""
    rows = await connection.fetch(_LIST, tenant_id=tenant_id, after=after, limit=limit)
    return [ProjectView(**row) for row in rows]


async def list_items(
    connection: Connection, tenant_id: str, project: str, *, after: tuple[str, str] | None, limit: int
) -> list[ProjectItemView]:
    """Return the items of a project by kind and name, from after `after`; none for an unknown project."""
    after_kind, after_name = after or (None, None)
    rows = await connection.fetch(
        _ITEMS, tenant_id=tenant_id, project=project, after_kind=after_kind, after_name=after_name, limit=limit
    )
    return [ProjectItemView(**row) for row in rows]
