"""Writes rows of an archive, in the importer's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncpg

from nova_workers.contracts.content import JsonObject
from nova_workers.errors import Conflict, InvalidInput
from nova_workers.ledger.archive_tables import KEPT, REFERENCES, KeptTable
from nova_workers.ledger.database import Connection
from nova_workers.ledger.upkeep_cursors import forget_passes

__all__ = ["TABLES", "begin_import", "check_references", "drop_untouched_seeds", "end_import", "write_rows"]

TABLES: Final[Mapping[str, KeptTable]] = {table.name: table for table in KEPT}

# One import of a tenant at a time; and no task gets its number twice, whatever the archive says.
_BEGIN = "UPDATE tenants SET next_task_id = GREATEST(next_task_id, $2) WHERE id = $1 RETURNING id"

_WRITE = """
INSERT INTO {table} (tenant_id, {columns})
SELECT $1, {columns} FROM jsonb_populate_recordset(NULL::{table}, $2) x WHERE {new}
{conflict}
"""
_KEEP = "ON CONFLICT DO NOTHING"
# The moves of a head have no id that another fleet knows.
_NEW_MOVE = """
NOT $3 OR NOT EXISTS (SELECT FROM thread_heads h
                       WHERE h.tenant_id = $1 AND h.thread_id = x.thread_id AND h.changed_at = x.changed_at
                         AND h.move = x.move AND h.turn_id IS NOT DISTINCT FROM x.turn_id)
"""

# The default agents that every tenant begins with, as long as nobody has changed or used them.
_DROP_SEEDS = """
DELETE FROM agents a
 USING agent_versions v
 WHERE a.tenant_id = $1 AND a.id = ANY($2::text[]) AND a.version = 1 AND a.deleted_at IS NULL
   AND v.tenant_id = a.tenant_id AND v.agent_id = a.id AND v.version = 1 AND v.created_by = 'seed'
   AND NOT EXISTS (SELECT FROM threads t WHERE t.tenant_id = a.tenant_id AND t.agent_id = a.id)
"""

_FOREIGN = """
SELECT x.{column} FROM {table} x JOIN {parent} p ON p.id = x.{column}
 WHERE x.tenant_id = $1 AND p.tenant_id <> $1
 LIMIT 1
"""
# Without its newest turn a thread cannot go on; and a history that leads nowhere, or in a circle, has no beginning.
_BROKEN = """
SELECT 'threads.head_turn_id', x.id FROM threads x LEFT JOIN turns p ON p.id = x.head_turn_id
 WHERE x.tenant_id = $1 AND x.head_turn_id IS NOT NULL AND p.id IS NULL
UNION ALL
SELECT 'turns.parent_turn_id', x.id FROM turns x LEFT JOIN turns p ON p.id = x.parent_turn_id
 WHERE x.tenant_id = $1 AND x.parent_turn_id IS NOT NULL AND (p.id IS NULL OR p.depth >= x.depth)
UNION ALL
SELECT 'tasks.parent_task_id', x.id::text FROM tasks x LEFT JOIN tasks p
    ON p.tenant_id = x.tenant_id AND p.id = x.parent_task_id
 WHERE x.tenant_id = $1 AND x.parent_task_id IS NOT NULL AND (p.id IS NULL OR p.id >= x.id)
LIMIT 1
"""

# Vectors and words for search are made anew, by the effect that makes those of every run.
_EFFECTS = """
INSERT INTO effects (id, tenant_id, run_id, thread_id, kind, position)
SELECT 'eff_' || upper(left(md5(r.id), 26)), r.tenant_id, r.id, r.thread_id, 'embeddings', 1
  FROM runs r
 WHERE r.tenant_id = $1 AND r.status = 'succeeded'
   AND NOT EXISTS (SELECT FROM effects e WHERE e.run_id = r.id AND e.kind = 'embeddings')
ON CONFLICT DO NOTHING
"""


async def begin_import(connection: Connection, tenant_id: str, *, next_task_id: int) -> None:
    """Hold the tenant for an import. Must be called inside its transaction."""
    await connection.execute(_BEGIN, tenant_id, next_task_id)


async def drop_untouched_seeds(connection: Connection, tenant_id: str, agent_ids: Sequence[str]) -> None:
    """Make room for agents that come in the place of default agents which nobody has touched."""
    await connection.execute(_DROP_SEEDS, tenant_id, list(agent_ids))


async def write_rows(
    connection: Connection, tenant_id: str, table: KeptTable, rows: Sequence[JsonObject], *, merge: bool
) -> int:
    """Write rows for a tenant, whatever tenant they name. Must be called inside the import's transaction.

    Args:
        rows: With columns of the table only; one that is missing is null.
        merge: Leave rows that are there as they are.

    Returns:
        How many were written.

    Raises:
        Conflict: A row is there already.
        InvalidInput: A value has the wrong form, or a row belongs to one that is not there.
    """
    heads = table.name == "thread_heads"
    query = _WRITE.format(
        table=table.name,
        columns=", ".join(f'"{column}"' for column in table.columns),
        new=_NEW_MOVE if heads else "true",
        conflict=_KEEP if merge else "",
    )
    args: tuple[Any, ...] = (tenant_id, list(rows), merge) if heads else (tenant_id, list(rows))
    try:
        return int((await connection.execute(query, *args)).rpartition(" ")[2])
    except asyncpg.UniqueViolationError as error:
        raise Conflict(
            f"{table.name}: {_detail(error)} Import into a tenant without it, or merge, which keeps what is there.",
            table=table.name,
        ) from error
    except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
        raise InvalidInput(f"{table.name}: {_detail(error)}", field=table.name) from error


async def check_references(connection: Connection, tenant_id: str) -> None:
    """Check that nothing of a tenant points at another tenant's rows, and that its histories are whole.

    Raises:
        InvalidInput: Something does.
    """
    for table, column, parent in REFERENCES:
        found = await connection.fetchval(_FOREIGN.format(table=table, column=column, parent=parent), tenant_id)
        if found is not None:
            raise InvalidInput(
                f"{table}.{column}: {found!r} is not of this archive. Its id is taken in this database.",
                field=f"{table}.{column}",
            )
    broken = await connection.fetchrow(_BROKEN, tenant_id)
    if broken is not None:
        raise InvalidInput(f"{broken[0]} of {broken[1]!r} leads nowhere, or in a circle.", field=broken[0])


async def end_import(connection: Connection, tenant_id: str) -> bool:
    """Have what follows a run be done for what was imported. Returns whether there is any."""
    await forget_passes(connection, tenant_id)
    return not (await connection.execute(_EFFECTS, tenant_id)).endswith(" 0")


def _detail(error: asyncpg.PostgresError) -> str:
    detail: str = getattr(error, "detail", None) or str(error)
    return detail if detail.endswith(".") else f"{detail}."
