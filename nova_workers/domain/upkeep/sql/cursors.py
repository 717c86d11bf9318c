"""Cursors of maintenance that walks whole tables in portions: the position, and the lease of the current worker.

Taking a cursor moves its `due_at` to the end of a lease, as effects do: after a crash it becomes due again, and work
continues from its position. Cursors are taken in the order in which they became due, one portion at a time, so a tenant
with a long history does not delay others.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from nova_workers.ledger.database import Connection

Work = Literal["backfill", "imports", "threads"]

_MANY = 1_000
"""Most new cursors of one statement; the next tick makes more."""

_ADD_TENANTS = """
INSERT INTO upkeep_cursors (tenant_id, work, target, variant)
SELECT t.id, 'backfill', '', :variant
  FROM tenants t
 WHERE NOT EXISTS (SELECT FROM upkeep_cursors c WHERE c.tenant_id = t.id AND c.work = 'backfill' AND c.target = '')
 LIMIT :limit
ON CONFLICT DO NOTHING
"""

# Uses the condition of the index ix_agents__retention, so that the long configurations are not read.
_ADD_AGENTS = """
INSERT INTO upkeep_cursors (tenant_id, work, target)
SELECT a.tenant_id, 'threads', a.id
  FROM agents a
 WHERE jsonb_typeof(a.spec -> 'retention') = 'object'
   AND NOT EXISTS (SELECT FROM upkeep_cursors c
                    WHERE c.tenant_id = a.tenant_id AND c.work = 'threads' AND c.target = a.id)
 LIMIT :limit
ON CONFLICT DO NOTHING
"""

# It was not worked on yet, so a worker of any embedding model takes it at once.
_ADD_IMPORTS = """
INSERT INTO upkeep_cursors (tenant_id, work, target, worked_at)
SELECT t.tenant_id, 'imports', t.id, '-infinity'
  FROM threads t
 WHERE t.tenant_id = :tenant_id AND t.imported_at IS NOT NULL AND t.deleted_at IS NULL
   AND (:thread_id::text IS NULL OR t.id = :thread_id)
ON CONFLICT DO NOTHING
"""

# Takes the cursor that has been due longest; concurrent workers skip its locked row. A cursor of another variant is
# taken only if it was not worked on for `patience`, and starts again: rows that were done with another variant are not
# done with this one. During a deploy, processes with two settings run side by side; without `patience` they would undo
# each other's work forever.
_TAKE = """
WITH due AS (
    SELECT tenant_id, work, target, variant
      FROM upkeep_cursors
     WHERE work = :work AND due_at <= now() AND (variant = :variant OR worked_at < now() - :patience::interval)
     ORDER BY due_at
     LIMIT 1
       FOR UPDATE SKIP LOCKED
)
UPDATE upkeep_cursors c
   SET variant = :variant,
       passed_at = CASE WHEN due.variant = :variant THEN c.passed_at END,
       passed_id = CASE WHEN due.variant = :variant THEN c.passed_id END,
       behind = c.behind OR due.variant <> :variant,
       due_at = now() + :lease::interval,
       worked_at = now()
  FROM due
 WHERE c.tenant_id = due.tenant_id AND c.work = due.work AND c.target = due.target
RETURNING c.tenant_id, c.work, c.target, c.passed_at, c.passed_id, c.due_at AS held_until
"""

# Guarded by the lease: a process that lost it changes nothing.
_MOVE = """
UPDATE upkeep_cursors
   SET passed_at = :passed_at, passed_id = :passed_id, behind = :behind, due_at = now() + :pause::interval,
       worked_at = now()
 WHERE tenant_id = :tenant_id AND work = :work AND target = :target AND due_at = :held_until
"""

_DROP = """
DELETE FROM upkeep_cursors WHERE tenant_id = :tenant_id AND work = :work AND target = :target AND due_at = :held_until
"""

# One index lookup per tenant that is behind; after a change of the model these are many. A tenant without usage is not
# behind.
_TENANTS_BEHIND = """
SELECT count(*)::int
  FROM upkeep_cursors c
 WHERE c.work = 'backfill' AND c.behind
   AND EXISTS (SELECT FROM usage u
                WHERE u.tenant_id = c.tenant_id AND u.created_at > COALESCE(c.passed_at, '-infinity'))
"""

_FORGET_PASSES = "DELETE FROM upkeep_cursors WHERE tenant_id = :tenant_id AND work = 'backfill'"


@dataclass(frozen=True, slots=True)
class Cursor:
    """A leased cursor.

    Attributes:
        target: Id of an agent or of an imported thread, or empty.
        passed_at: All rows up to this moment and `passed_id` are done; None: none are.
        held_until: End of the lease. It also distinguishes this holder from the next.
    """

    tenant_id: str
    work: Work
    target: str
    passed_at: datetime | None
    passed_id: str | None
    held_until: datetime


async def add_tenant_cursors(connection: Connection, *, variant: str) -> None:
    """Add a backfill cursor for each tenant without one."""
    await connection.execute(_ADD_TENANTS, variant=variant, limit=_MANY)


async def add_agent_cursors(connection: Connection) -> None:
    """Add a cursor for each agent with a retention policy and without one."""
    await connection.execute(_ADD_AGENTS, limit=_MANY)


async def add_import_cursor(transaction: Connection, tenant_id: str, thread_id: str) -> None:
    """Add the cursor that makes vectors of an imported thread."""
    await transaction.execute(_ADD_IMPORTS, tenant_id=tenant_id, thread_id=thread_id)


async def add_import_cursors(transaction: Connection, tenant_id: str) -> None:
    """Add the cursors of all threads of a tenant that were imported with messages."""
    await transaction.execute(_ADD_IMPORTS, tenant_id=tenant_id, thread_id=None)


async def take_cursor(
    connection: Connection, work: Work, *, lease: timedelta, variant: str = "", patience: timedelta = timedelta()
) -> Cursor | None:
    """Take the cursor that has been due longest; None if none is due.

    Args:
        lease: For this long no other worker takes it.
        variant: What the work is done with. A cursor of another variant starts again,
        patience: if it was not worked on for this long.
    """
    row = await connection.fetchrow(_TAKE, work=work, variant=variant, lease=lease, patience=patience)
    return None if row is None else Cursor(**row)


async def move_cursor(
    connection: Connection,
    cursor: Cursor,
    *,
    passed_at: datetime | None,
    passed_id: str | None,
    behind: bool,
    pause: timedelta,
) -> bool:
    """Record the position and release the cursor. False if the lease was lost: nothing is written.

    Args:
        behind: Whether there is more to do.
        pause: Time until it is due again.
    """
    tag = await connection.execute(
        _MOVE,
        tenant_id=cursor.tenant_id,
        work=cursor.work,
        target=cursor.target,
        held_until=cursor.held_until,
        passed_at=passed_at,
        passed_id=passed_id,
        behind=behind,
        pause=pause,
    )
    return tag != "UPDATE 0"


async def drop_cursor(connection: Connection, cursor: Cursor) -> None:
    """Delete a cursor that has no more work."""
    await connection.execute(
        _DROP, tenant_id=cursor.tenant_id, work=cursor.work, target=cursor.target, held_until=cursor.held_until
    )


async def tenants_behind(connection: Connection) -> int:
    """Return how many tenants have runs that the backfill has not checked."""
    return await connection.fetchval(_TENANTS_BEHIND)


async def reset_backfill(connection: Connection, tenant_id: str) -> None:
    """Restart a tenant's backfill, because rows were added that are older than its position."""
    await connection.execute(_FORGET_PASSES, tenant_id=tenant_id)
