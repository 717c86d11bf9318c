"""Writes rows of an archive in the import's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import asyncpg

from nova_workers.base.errors import Conflict, InvalidInput
from nova_workers.contracts.content import JsonObject
from nova_workers.domain.archive.sql.tables import KeptTable, Reference, references
from nova_workers.domain.upkeep.sql.cursors import add_import_cursors, reset_backfill
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_effects

# Locks the tenant's row, so that imports of one tenant are serialized, and raises its task counter above all numbers of
# the archive.
_BEGIN = "UPDATE tenants SET next_task_id = GREATEST(next_task_id, :next_task_id) WHERE id = :tenant_id RETURNING id"

_WRITE = """
INSERT INTO {table} (tenant_id, {columns})
SELECT :tenant_id, {columns} FROM jsonb_populate_recordset(NULL::{table}, :rows) x WHERE {new}
ON CONFLICT DO NOTHING
"""
# A given row that was there before this transaction. Asked for rather than read from the error of a conflict: Postgres
# leaves keys out of errors about tables with row-level security.
_TAKEN = """
SELECT {key} FROM jsonb_populate_recordset(NULL::{table}, :rows) x JOIN {table} t USING ({columns})
 WHERE t.xmin <> pg_current_xact_id()::xid
 ORDER BY t.tenant_id = :tenant_id DESC
 LIMIT 1
"""
# Rows without a shared key that a merge must not duplicate: moves of a head have ids of their own fleet, and an agent
# that is kept has its own version history, whose next version is still to come.
_NEW: Final[Mapping[str, str]] = {
    "thread_heads": """
NOT :merge OR NOT EXISTS (SELECT FROM thread_heads h
                           WHERE h.tenant_id = :tenant_id AND h.thread_id = x.thread_id
                             AND h.changed_at = x.changed_at AND h.move = x.move
                             AND h.turn_id IS NOT DISTINCT FROM x.turn_id)
""",
    "agent_versions": """
NOT :merge OR NOT EXISTS (SELECT FROM agents a
                           WHERE a.tenant_id = :tenant_id AND a.id = x.agent_id AND a.version < x.version)
""",
}

# Deletes the default agents of a new tenant that were never changed or used.
_DROP_SEEDS = """
DELETE FROM agents a
 USING agent_versions v
 WHERE a.tenant_id = :tenant_id AND a.id = ANY(:agent_ids::text[]) AND a.version = 1 AND a.deleted_at IS NULL
   AND v.tenant_id = a.tenant_id AND v.agent_id = a.id AND v.version = 1 AND v.created_by = 'seed'
   AND NOT EXISTS (SELECT FROM threads t WHERE t.tenant_id = a.tenant_id AND t.agent_id = a.id)
"""

# Of the rows that this transaction wrote. Another tenant's row is none that a reference may lead to, and is answered as
# one that does not exist.
_UNRESOLVED = """
SELECT x.{column} FROM {table} x LEFT JOIN {parent} p ON p.id = x.{column} AND p.tenant_id = x.tenant_id
 WHERE x.tenant_id = :tenant_id AND x.{column} IS NOT NULL AND p.id IS NULL
   AND x.xmin = pg_current_xact_id()::xid
 LIMIT 1
"""
# Before rows are written: a foreign key, or a unique index over all tenants, would tell of another tenant's row.
_NOT_OWNED = """
SELECT g.id FROM unnest(:ids::text[]) AS g (id)
 WHERE NOT EXISTS (SELECT FROM {parent} p WHERE p.id = g.id AND p.tenant_id = :tenant_id)
 LIMIT 1
"""
# A thread needs its newest turn to continue. Parents must exist and be less deep, so that every history has a
# beginning.
_BROKEN = """
SELECT 'threads.head_turn_id', x.id FROM threads x LEFT JOIN turns p ON p.id = x.head_turn_id
 WHERE x.tenant_id = :tenant_id AND x.head_turn_id IS NOT NULL AND p.id IS NULL
UNION ALL
SELECT 'turns.parent_turn_id', x.id FROM turns x LEFT JOIN turns p ON p.id = x.parent_turn_id
 WHERE x.tenant_id = :tenant_id AND x.parent_turn_id IS NOT NULL AND (p.id IS NULL OR p.depth >= x.depth)
UNION ALL
SELECT 'tasks.parent_task_id', x.id::text FROM tasks x LEFT JOIN tasks p
    ON p.tenant_id = x.tenant_id AND p.id = x.parent_task_id
 WHERE x.tenant_id = :tenant_id AND x.parent_task_id IS NOT NULL AND (p.id IS NULL OR p.id >= x.id)
LIMIT 1
"""

# An agent's row and its current version must be equal: people see one, and runs begin with the other. Higher versions
# were saved and are not current.
_DIFFERENT = """
SELECT a.id, a.version, 'is not in agent_versions' AS problem
  FROM agents a
 WHERE a.tenant_id = :tenant_id AND a.renamed_to IS NULL
   AND NOT EXISTS (SELECT FROM agent_versions v
                    WHERE v.tenant_id = a.tenant_id AND v.agent_id = a.id AND v.version = a.version)
UNION ALL
SELECT a.id, v.version, 'has another spec in agent_versions than in agents'
  FROM agents a JOIN agent_versions v ON v.tenant_id = a.tenant_id AND v.agent_id = a.id
 WHERE a.tenant_id = :tenant_id AND a.renamed_to IS NULL
   AND v.version = a.version AND v.spec <> a.spec
LIMIT 1
"""
_UNKNOWN_SKILL = """
SELECT a.id, s.name
  FROM agents a CROSS JOIN LATERAL jsonb_array_elements_text(a.spec -> 'skills') AS s (name)
 WHERE a.tenant_id = :tenant_id AND a.deleted_at IS NULL
   AND NOT EXISTS (SELECT FROM skills k WHERE k.tenant_id = a.tenant_id AND k.name = s.name)
LIMIT 1
"""

_SKILLS_WITH_FILES = "SELECT DISTINCT skill_name FROM skill_files WHERE tenant_id = :tenant_id ORDER BY skill_name"
# `octet_length` of an out-of-line column does not read the content.
_OVERSIZED = """
SELECT skill_name FROM skill_files WHERE tenant_id = :tenant_id
 GROUP BY skill_name HAVING count(*) > :most_files OR sum(octet_length(content)) > :most_bytes
 LIMIT 1
"""

# All skills of the tenant, so that none is written or given to an agent between the checks of an import and its commit.
# In one order, as changes of agents lock them. `written`: the skill, or a file of it, by this transaction.
_LOCK_SKILLS = """
SELECT s.name,
       s.xmin = pg_current_xact_id()::xid
       OR EXISTS (SELECT FROM skill_files f
                   WHERE f.tenant_id = s.tenant_id AND f.skill_name = s.name
                     AND f.xmin = pg_current_xact_id()::xid) AS written
  FROM skills s WHERE s.tenant_id = :tenant_id ORDER BY s.name FOR NO KEY UPDATE OF s
"""

# The effect that indexes every run for search indexes the imported ones too.
_EFFECTS = insert_effects(
    """runs r
 WHERE r.tenant_id = :tenant_id AND r.status = 'succeeded'
   AND NOT EXISTS (SELECT FROM effects e WHERE e.run_id = r.id AND e.kind = 'embeddings')
ON CONFLICT DO NOTHING""",
    id="'eff_' || upper(left(md5(r.id), 26))",
    tenant_id="r.tenant_id",
    run_id="r.id",
    thread_id="r.thread_id",
    kind="'embeddings'",
    position="1",
)


async def begin_import(connection: Connection, tenant_id: str, *, next_task_id: int) -> None:
    """Lock the tenant for an import. Call it in the import's transaction."""
    await connection.execute(_BEGIN, tenant_id=tenant_id, next_task_id=next_task_id)


async def drop_untouched_seeds(connection: Connection, tenant_id: str, agent_ids: Sequence[str]) -> None:
    """Delete unchanged and unused default agents that the archive replaces."""
    await connection.execute(_DROP_SEEDS, tenant_id=tenant_id, agent_ids=list(agent_ids))


async def write_rows(
    connection: Connection, tenant_id: str, table: KeptTable, rows: Sequence[JsonObject], *, merge: bool
) -> int:
    """Write rows for a tenant, ignoring the tenant that they name. Call it in the import's transaction.

    Args:
        rows: With columns of the table only. A column that no row has gets its default, as in an archive of a release
            before the column; one that only some rows lack is null in those.
        merge: Keep existing rows unchanged.

    Returns:
        How many were written.

    Raises:
        Conflict: A row exists already.
        InvalidInput: A value has the wrong form, or a row refers to a missing row.
    """
    await _require_owners(connection, tenant_id, table, rows)
    new = _NEW.get(table.name)
    given = {column for row in rows for column in row}
    query = _WRITE.format(
        table=table.name,
        columns=", ".join(f'"{column}"' for column in table.columns if column in given),
        new=new or "true",
    )
    values: dict[str, Any] = {"tenant_id": tenant_id, "rows": list(rows)} | ({} if new is None else {"merge": merge})
    try:
        written = int((await connection.execute(query, **values)).rpartition(" ")[2])
    except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
        raise InvalidInput(f"{table.name}: {_detail(error)}", field=table.name) from error
    if not merge and written < len(rows):
        raise Conflict(
            f"{await _taken(connection, tenant_id, table, rows)} is there already. Import into a tenant without it, or "
            "with `--merge` (`?merge=true`), which keeps what is there.",
            table=table.name,
        )
    return written


async def _require_owners(connection: Connection, tenant_id: str, table: KeptTable, rows: Sequence[JsonObject]) -> None:
    for reference in references([table]):
        ids = sorted({str(row[reference.column]) for row in rows if row.get(reference.column) is not None})
        if reference.owned and ids:
            found = await connection.fetchval(_NOT_OWNED.format(parent=reference.parent), ids=ids, tenant_id=tenant_id)
            if found is not None:
                raise _unresolved(reference, found)


def _unresolved(reference: Reference, found: str) -> InvalidInput:
    where = f"{reference.table}.{reference.column}"
    return InvalidInput(f"{where}: {found!r} is not of this archive.", field=where)


async def check_references(connection: Connection, tenant_id: str, tables: Iterable[KeptTable]) -> None:
    """Check that references of imported rows lead to rows of the tenant, and that its histories are complete.

    Raises:
        InvalidInput: A reference leads nowhere, or to another tenant; the message names it, and not which of the two.
    """
    for reference in references(tables):
        found = await connection.fetchval(_UNRESOLVED.format(**reference._asdict()), tenant_id=tenant_id)
        if found is not None:
            raise _unresolved(reference, found)
    broken = await connection.fetchrow(_BROKEN, tenant_id=tenant_id)
    if broken is not None:
        raise InvalidInput(f"{broken[0]} of {broken[1]!r} leads nowhere, or in a circle.", field=broken[0])


async def check_agents(connection: Connection, tenant_id: str) -> None:
    """Check that a tenant's agents equal their newest versions, and have only skills that exist.

    Raises:
        InvalidInput: An agent differs from its newest version, or has an unknown skill; the message names it.
    """
    different = await connection.fetchrow(_DIFFERENT, tenant_id=tenant_id)
    if different is not None:
        raise InvalidInput(
            f"agents {different['id']!r}: version {different['version']} {different['problem']}.",
            field="agent_versions.spec",
        )
    unknown = await connection.fetchrow(_UNKNOWN_SKILL, tenant_id=tenant_id)
    if unknown is not None:
        raise InvalidInput(
            f"agents {unknown['id']!r}: spec.skills: there is no skill {unknown['name']!r}.", field="agents.spec.skills"
        )


async def oversized_skill(connection: Connection, tenant_id: str, *, most_files: int, most_bytes: int) -> str | None:
    """Return a skill of a tenant with too many files or bytes; None if there is none."""
    return await connection.fetchval(_OVERSIZED, tenant_id=tenant_id, most_files=most_files, most_bytes=most_bytes)


async def skills_with_files(connection: Connection, tenant_id: str) -> list[str]:
    """Return the names of a tenant's skills with files besides their SKILL.md."""
    return [row["skill_name"] for row in await connection.fetch(_SKILLS_WITH_FILES, tenant_id=tenant_id)]


async def lock_skills(connection: Connection, tenant_id: str) -> list[str]:
    """Lock a tenant's skills until the transaction ends, and return the names of those that it wrote."""
    rows = await connection.fetch(_LOCK_SKILLS, tenant_id=tenant_id)
    return [row["name"] for row in rows if row["written"]]


async def end_import(connection: Connection, tenant_id: str) -> bool:
    """Insert the effects of imported runs. Returns whether there are any."""
    await reset_backfill(connection, tenant_id)
    await add_import_cursors(connection, tenant_id)
    return not (await connection.execute(_EFFECTS, tenant_id=tenant_id)).endswith(" 0")


async def _taken(connection: Connection, tenant_id: str, table: KeptTable, rows: Sequence[JsonObject]) -> str:
    """Return a description of an existing row, such as ``Agent 'asker'``."""
    noun = table.name.replace("_", " ")
    noun = (f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s")).capitalize()
    own = [part.removeprefix("x.") for part in table.order.split(", ") if part.startswith("x.")]
    columns = ["id"] if "id" in rows[0] else own
    query = _TAKEN.format(table=table.name, key=", ".join(f"x.{each}" for each in columns), columns=", ".join(columns))
    found = await connection.fetchrow(query, tenant_id=tenant_id, rows=list(rows))
    if found is None:
        return f"{noun} with a key of another one"
    if len(columns) == 1:
        return f"{noun} {found[0]!r}"
    return f"{noun} with {', '.join(f'{column} {found[column]!r}' for column in columns)}"


def _detail(error: asyncpg.PostgresError) -> str:
    detail: str = getattr(error, "detail", None) or str(error)
    return detail if detail.endswith(".") else f"{detail}."
