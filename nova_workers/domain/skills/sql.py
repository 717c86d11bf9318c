"""A tenant's skills: each is a SKILL.md and its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova_workers.base.errors import NotFound, existing, too_many
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.skills import (
    SkillDetail,
    SkillDirectory,
    SkillFile,
    SkillFileInfo,
    SkillFront,
    SkillView,
)
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.stored import read_stored

MAX_SKILLS = 500
"""A tenant's. Approximate: two concurrent inserts may both take the last free place."""

# At most `at_most` in a tenant; an existing skill may always be replaced.
_PUT = """
INSERT INTO skills AS s (tenant_id, name, description, skill_md, body, front_matter)
SELECT :tenant_id, :name, :description, :skill_md, :body, :front_matter
 WHERE (SELECT count(*) FROM skills WHERE tenant_id = :tenant_id) < :at_most
    OR EXISTS (SELECT FROM skills WHERE tenant_id = :tenant_id AND name = :name)
ON CONFLICT (tenant_id, name) DO UPDATE
   SET description = EXCLUDED.description, skill_md = EXCLUDED.skill_md, body = EXCLUDED.body,
       front_matter = EXCLUDED.front_matter, updated_at = now()
RETURNING name
"""
_CLEAR_FILES = "DELETE FROM skill_files WHERE tenant_id = :tenant_id AND skill_name = :name"
_ADD_FILES = """
INSERT INTO skill_files (tenant_id, skill_name, path, executable, content)
SELECT :tenant_id, :name, f.path, f.executable, f.content
  FROM unnest(:paths::text[], :executables::bool[], :contents::bytea[]) AS f(path, executable, content)
"""

# `octet_length` of an out-of-line column does not read the content.
_FILES = """
COALESCE((SELECT jsonb_agg(jsonb_build_object('path', f.path, 'size_bytes', octet_length(f.content),
                                              'executable', f.executable) ORDER BY f.path COLLATE "C")
            FROM skill_files f WHERE f.tenant_id = s.tenant_id AND f.skill_name = s.name), '[]') AS files
"""
_LIST = f"""
SELECT s.name, s.front_matter, s.created_at, s.updated_at, {_FILES}
  FROM skills s
 WHERE s.tenant_id = :tenant_id AND (:after::text IS NULL OR s.name > :after)
 ORDER BY s.name
 LIMIT :limit
"""
_GET = f"SELECT s.*, {_FILES} FROM skills s WHERE s.tenant_id = :tenant_id AND s.name = :name"
_FILE = """
SELECT path, executable, content FROM skill_files WHERE tenant_id = :tenant_id AND skill_name = :name AND path = :path
"""
# In one order, as an import locks them.
_HOLD = "SELECT name FROM skills WHERE tenant_id = :tenant_id AND name = ANY(:names::text[]) ORDER BY name FOR SHARE"
_LOAD = "SELECT name, description, body FROM skills WHERE tenant_id = :tenant_id AND name = ANY(:names::text[])"
_LOAD_FILES = """
SELECT skill_name, path, executable, content FROM skill_files
 WHERE tenant_id = :tenant_id AND skill_name = ANY(:found::text[])
 ORDER BY skill_name, path
"""
_DELETE = "DELETE FROM skills WHERE tenant_id = :tenant_id AND name = :name RETURNING name"
_SPECS = """
SELECT id, spec FROM agents
 WHERE tenant_id = :tenant_id AND deleted_at IS NULL AND spec -> 'skills' ?| :names::text[]
 ORDER BY id
"""
_AGENTS = """
SELECT id FROM agents WHERE tenant_id = :tenant_id AND deleted_at IS NULL AND spec -> 'skills' ? :name
ORDER BY id LIMIT :limit
"""


async def put_skill(  # noqa: PLR0917 - the parts of one value
    connection: Connection, tenant_id: str, front: SkillFront, skill_md: str, body: str, files: Sequence[SkillFile]
) -> SkillDetail:
    """Add a skill, or replace the one of its name. Call it in a transaction.

    Raises:
        LimitExceeded: The tenant has the most skills allowed.
    """
    matter = front.model_dump(mode="json")
    if (
        await connection.fetchval(
            _PUT,
            tenant_id=tenant_id,
            name=front.name,
            description=front.description,
            skill_md=skill_md,
            body=body,
            front_matter=matter,
            at_most=MAX_SKILLS,
        )
        is None
    ):
        raise too_many(MAX_SKILLS, "skills", "Remove unused ones.")
    await connection.execute(_CLEAR_FILES, tenant_id=tenant_id, name=front.name)
    await connection.execute(
        _ADD_FILES,
        tenant_id=tenant_id,
        name=front.name,
        paths=[file.path for file in files],
        executables=[file.executable for file in files],
        contents=[file.content for file in files],
    )
    return await get_skill(connection, tenant_id, front.name)


async def get_skill(connection: Connection, tenant_id: str, name: str) -> SkillDetail:
    """Return a skill with its text.

    Raises:
        NotFound: There is no such skill.
    """
    row = existing(await connection.fetchrow(_GET, tenant_id=tenant_id, name=name), "skill", name)
    return SkillDetail(**_seen(row), skill_md=row["skill_md"])


async def list_skills(connection: Connection, tenant_id: str, *, after: str | None, limit: int) -> list[SkillView]:
    """Return skills by name, from after `after`."""
    return [
        SkillView(**_seen(row)) for row in await connection.fetch(_LIST, tenant_id=tenant_id, after=after, limit=limit)
    ]


async def get_skill_file(connection: Connection, tenant_id: str, name: str, path: str) -> SkillFile:
    """Return a file of a skill.

    Raises:
        NotFound: There is no such skill, or no such file in it.
    """
    row = await connection.fetchrow(_FILE, tenant_id=tenant_id, name=name, path=path)
    if row is None:
        skill = await get_skill(connection, tenant_id, name)
        there = ", ".join(repr(file.path) for file in skill.files) or "no files"
        raise NotFound(f"Skill {name!r} has no file {path!r}; it has {there}.", kind="skill_file", id=path, skill=name)
    return SkillFile(row["path"], row["content"], row["executable"])


async def hold_skills(connection: Connection, tenant_id: str, names: Sequence[str]) -> set[str]:
    """Return the existing skills of `names`: they are neither changed nor deleted until the transaction ends."""
    return {row["name"] for row in await connection.fetch(_HOLD, tenant_id=tenant_id, names=list(names))}


async def load_skills(connection: Connection, tenant_id: str, names: Sequence[str]) -> tuple[SkillDirectory, ...]:
    """Return the existing skills of `names` with their files, in the order of `names`."""
    found = {row["name"]: row for row in await connection.fetch(_LOAD, tenant_id=tenant_id, names=list(names))}
    files: dict[str, list[SkillFile]] = {name: [] for name in found}
    for row in await connection.fetch(_LOAD_FILES, tenant_id=tenant_id, found=list(found)):
        # Files of a skill that was replaced between the two reads may be of the new version.
        files[row["skill_name"]].append(SkillFile(row["path"], row["content"], row["executable"]))
    return tuple(
        SkillDirectory(name, found[name]["description"], found[name]["body"], tuple(files[name]))
        for name in names
        if name in found
    )


async def delete_skill(connection: Connection, tenant_id: str, name: str) -> None:
    """Remove a skill and its files.

    Raises:
        NotFound: There is no such skill.
    """
    existing(await connection.fetchval(_DELETE, tenant_id=tenant_id, name=name), "skill", name)


async def specs_with_skills(connection: Connection, tenant_id: str, names: Sequence[str]) -> dict[str, AgentSpec]:
    """Return the configurations of the agents to which one of these skills is assigned, by their ids.

    Raises:
        NewerValue: A later release wrote one, and it uses what this one does not know.
    """
    rows = await connection.fetch(_SPECS, tenant_id=tenant_id, names=list(names))
    return {row["id"]: read_stored(AgentSpec.model_validate, row["spec"]) for row in rows}


async def agents_with_skill(connection: Connection, tenant_id: str, name: str, *, limit: int) -> list[str]:
    """Return ids of agents to which a skill is assigned."""
    return [row["id"] for row in await connection.fetch(_AGENTS, tenant_id=tenant_id, name=name, limit=limit)]


def _seen(row: Row) -> dict[str, Any]:
    front = SkillFront.model_validate(row["front_matter"])
    return {
        **front.model_dump(),
        "allowed_tools": list(front.allowed_tools),
        "files": [SkillFileInfo.model_validate(file) for file in row["files"]],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
    }
