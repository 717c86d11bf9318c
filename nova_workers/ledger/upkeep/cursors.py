"""Cursors of work that goes over a whole table by and by: how far it has come, and who is at it.

Whoever takes a cursor moves its `due_at` to the end of a lease, as effects do it: if he dies, it is due again, and goes
on from where it stood. Cursors are taken in the order in which they fell due, and put at the end of the line after one
portion of work, so that a tenant with a long past holds up nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from nova_workers.ledger.database import Connection

__all__ = [
    "Cursor",
    "Work",
    "add_agent_cursors",
    "add_tenant_cursors",
    "drop_cursor",
    "move_cursor",
    "reset_backfill",
    "take_cursor",
    "tenants_behind",
]

Work = Literal["backfill", "threads"]

_MANY = 1_000
"""New cursors of one statement; the next tick makes more."""

_ADD_TENANTS = """
INSERT INTO upkeep_cursors (tenant_id, work, target, variant)
SELECT t.id, 'backfill', '', :variant
  FROM tenants t
 WHERE NOT EXISTS (SELECT FROM upkeep_cursors c WHERE c.tenant_id = t.id AND c.work = 'backfill' AND c.target = '')
 LIMIT :limit
ON CONFLICT DO NOTHING
"""

# The condition is that of the index ix_agents__retention: configurations are long, and are not read for this.
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

# A cursor of another variant must have been left alone for `patience`. What was passed with another variant was not
# passed with this one. While processes with two settings run side by side, as in a deploy, the one that is at it keeps
# it: else they would undo each other's work for ever.
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

# Under the lease that was taken: a process that lost it changes nothing.
_MOVE = """
UPDATE upkeep_cursors
   SET passed_at = :passed_at, passed_id = :passed_id, behind = :behind, due_at = now() + :pause::interval,
       worked_at = now()
 WHERE tenant_id = :tenant_id AND work = :work AND target = :target AND due_at = :held_until
"""

_DROP = """
DELETE FROM upkeep_cursors WHERE tenant_id = :tenant_id AND work = :work AND target = :target AND due_at = :held_until
"""

# An index lookup for each tenant that is behind, of which there are few but after a change of the model. Who never said
# anything is not behind.
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
    """A cursor that was taken.

    Attributes:
        target: An agent, or empty.
        passed_at: All rows up to this moment and `passed_id` are done; None is from the beginning.
        held_until: The lease. It is also what tells this holder from the next.
    """

    tenant_id: str
    work: Work
    target: str
    passed_at: datetime | None
    passed_id: str | None
    held_until: datetime


async def add_tenant_cursors(connection: Connection, *, variant: str) -> None:
    """Give each tenant that has none a cursor for the backfill."""
    await connection.execute(_ADD_TENANTS, variant=variant, limit=_MANY)


async def add_agent_cursors(connection: Connection) -> None:
    """Give each agent with a policy for its threads a cursor."""
    await connection.execute(_ADD_AGENTS, limit=_MANY)


async def take_cursor(
    connection: Connection, work: Work, *, lease: timedelta, variant: str = "", patience: timedelta = timedelta()
) -> Cursor | None:
    """Take the cursor that has been due for longest; None where none is.

    Args:
        lease: For this long nobody else takes it.
        variant: What the work is made with. A cursor of another one begins anew,
        patience: once nobody has touched it for this long.
    """
    row = await connection.fetchrow(_TAKE, work=work, variant=variant, lease=lease, patience=patience)
    return None if row is None else Cursor(**dict(row))


async def move_cursor(
    connection: Connection,
    cursor: Cursor,
    *,
    passed_at: datetime | None,
    passed_id: str | None,
    behind: bool,
    pause: timedelta,
) -> bool:
    """Write how far the work has come, and give the cursor back. False where the lease was lost: nothing is written.

    Args:
        behind: Whether there is more to do.
        pause: It is due again after this.
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
    """Delete a cursor: there is nothing to go over any more."""
    await connection.execute(
        _DROP, tenant_id=cursor.tenant_id, work=cursor.work, target=cursor.target, held_until=cursor.held_until
    )


async def tenants_behind(connection: Connection) -> int:
    """Return how many tenants have a past that the backfill has not looked through."""
    return await connection.fetchval(_TENANTS_BEHIND)


async def reset_backfill(connection: Connection, tenant_id: str) -> None:
    """Have a tenant's past looked through anew: some came that is older than what was passed."""
    await connection.execute(_FORGET_PASSES, tenant_id=tenant_id)
