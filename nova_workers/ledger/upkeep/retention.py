"""Rows that nobody needs any more, deleted by age, a bounded batch a statement.

Each batch is found on an index that holds little else, oldest first; rows that another process holds are passed over,
so any number of processes share the work. What each table keeps, and for how long: docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from nova_workers.contracts.deliveries import INBOX
from nova_workers.ledger.database import Connection
from nova_workers.ledger.upkeep.cursors import Cursor
from nova_workers.vocabulary import OPEN_RUNS, OPEN_TASKS, KeptTurns, sql_list

__all__ = ["AGED", "Aged", "ThreadPolicy", "WalkedThread", "delete_aged", "thread_policy", "walk_threads"]

Aged = Literal["done_effects", "failed_effects", "deliveries", "inbox", "firings"]

_EFFECTS = """
DELETE FROM effects
 WHERE id = ANY(ARRAY(SELECT id FROM effects
                       WHERE status = '{status}' AND done_at < now() - make_interval(days => :days)
                       ORDER BY done_at
                       LIMIT :limit
                         FOR UPDATE SKIP LOCKED))
"""

_DELIVERIES = f"""
DELETE FROM deliveries
 WHERE id = ANY(ARRAY(SELECT id FROM deliveries
                       WHERE target <> '{INBOX}' AND status IN ('delivered', 'failed', 'closed')
                         AND created_at < now() - make_interval(days => :days)
                       ORDER BY created_at
                       LIMIT :limit
                         FOR UPDATE SKIP LOCKED))
"""

# An inbox item is not over while it waits for its channels, or for a person's answer.
_INBOX = f"""
DELETE FROM deliveries
 WHERE id = ANY(ARRAY(SELECT id FROM deliveries
                       WHERE target = '{INBOX}' AND routed AND created_at < now() - make_interval(days => :days)
                         AND NOT (kind IN ('question', 'approval') AND status = 'pending')
                       ORDER BY created_at
                       LIMIT :limit
                         FOR UPDATE SKIP LOCKED))
"""

# A run tells itself which trigger fired it, and a slot that has passed does not come back: a firing is history only.
_FIRINGS = """
DELETE FROM trigger_firings
 WHERE id = ANY(ARRAY(SELECT id FROM trigger_firings
                       WHERE fired_at < now() - make_interval(days => :days) AND outcome <> 'queued'
                       ORDER BY fired_at
                       LIMIT :limit
                         FOR UPDATE SKIP LOCKED))
"""

AGED: Final[dict[Aged, str]] = {
    "done_effects": _EFFECTS.format(status="done"),
    "failed_effects": _EFFECTS.format(status="failed"),
    "deliveries": _DELIVERIES,
    "inbox": _INBOX,
    "firings": _FIRINGS,
}
"""What goes by age alone, and its statement."""

_POLICY = """
SELECT (spec -> 'retention' ->> 'after_days')::int AS after_days, spec -> 'retention' ->> 'keep' AS keep
  FROM agents
 WHERE tenant_id = :tenant_id AND id = :agent_id AND jsonb_typeof(spec -> 'retention') = 'object'
"""

# Threads of an agent in the order in which they were made; one that is younger than the policy's age ends the walk.
# Due is what has been left alone for so long, and is needed by nobody: no run of it is open, it belongs to no open
# task, and no trigger starts runs on it.
_WALK = f"""
SELECT t.id, t.created_at,
       t.updated_at < now() - make_interval(days => :after_days) AND t.active_run_id IS NULL
       AND (t.trimmed_at IS NULL OR t.trimmed_at < t.updated_at)
       AND NOT EXISTS (SELECT FROM runs r
                        WHERE r.thread_id = t.id AND r.status IN {sql_list(OPEN_RUNS)})
       AND NOT EXISTS (SELECT FROM tasks k
                        WHERE t.task_id IS NOT NULL AND k.tenant_id = t.tenant_id AND k.id = t.task_id
                          AND k.status IN {sql_list(OPEN_TASKS)})
       AND NOT EXISTS (SELECT FROM triggers g WHERE g.thread_id = t.id AND g.deleted_at IS NULL) AS due
  FROM (SELECT * FROM threads
         WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND deleted_at IS NULL AND id > :after_thread_id
         ORDER BY id
         LIMIT :limit) t
 WHERE t.created_at < now() - make_interval(days => :after_days)
 ORDER BY t.id
"""


@dataclass(frozen=True, slots=True)
class ThreadPolicy:
    """What becomes of an agent's threads that have been left alone.

    Attributes:
        after_days: For so long.
        keep: ``none`` deletes the thread, ``latest`` all but its latest turn.
    """

    after_days: int
    keep: KeptTurns


@dataclass(frozen=True, slots=True)
class WalkedThread:
    """A thread that the walk came by, and whether its policy applies."""

    id: str
    due: bool


async def delete_aged(connection: Connection, what: Aged, *, days: int, limit: int) -> int:
    """Delete the oldest rows of a kind that are older than `days`, at most `limit`, and return how many."""
    return _count(await connection.execute(AGED[what], days=days, limit=limit))


async def thread_policy(connection: Connection, cursor: Cursor) -> ThreadPolicy | None:
    """Return the policy of the cursor's agent; None where it has none any more."""
    row = await connection.fetchrow(_POLICY, tenant_id=cursor.tenant_id, agent_id=cursor.target)
    return None if row is None else ThreadPolicy(row["after_days"], row["keep"])


async def walk_threads(
    connection: Connection, cursor: Cursor, policy: ThreadPolicy, *, limit: int
) -> Sequence[WalkedThread]:
    """Return the next threads of an agent after the cursor's place, up to the first that is too young."""
    rows = await connection.fetch(
        _WALK,
        tenant_id=cursor.tenant_id,
        agent_id=cursor.target,
        after_thread_id=cursor.passed_id or "",
        after_days=policy.after_days,
        limit=limit,
    )
    return [WalkedThread(row["id"], row["due"]) for row in rows]


def _count(tag: str) -> int:
    return int(tag.rpartition(" ")[2])
