"""Deletes rows by age, in bounded batches.

Each batch is found on a small index, oldest first. Locked rows are skipped, so any number of processes share the work.
The audit log is shortened by a function of its own (`audit_chains`).
What each table keeps, and for how long: docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from nova_workers.base.vocabulary import OPEN_RUNS, OPEN_TASKS, KeptTurns, sql_list
from nova_workers.contracts.changes import KEPT_S
from nova_workers.contracts.deliveries import INBOX
from nova_workers.domain.upkeep.sql.cursors import Cursor
from nova_workers.ledger.database import Connection

Aged = Literal["done_effects", "failed_effects", "deliveries", "inbox", "firings", "work_orders"]

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

# Keeps inbox items that are not routed yet, and questions without an answer.
_INBOX = f"""
DELETE FROM deliveries
 WHERE id = ANY(ARRAY(SELECT id FROM deliveries
                       WHERE target = '{INBOX}' AND routed AND created_at < now() - make_interval(days => :days)
                         AND NOT (kind IN ('question', 'approval') AND status = 'pending')
                       ORDER BY created_at
                       LIMIT :limit
                         FOR UPDATE SKIP LOCKED))
"""

# A run names its trigger, and a past occurrence does not come back, so a firing is history only.
_FIRINGS = """
DELETE FROM trigger_firings
 WHERE id = ANY(ARRAY(SELECT id FROM trigger_firings
                       WHERE fired_at < now() - make_interval(days => :days) AND outcome <> 'queued'
                       ORDER BY fired_at
                       LIMIT :limit
                         FOR UPDATE SKIP LOCKED))
"""

# Equal orders may still get the result of an old one: its age counts once it has no key any more, or an expired one.
_WORK_ORDERS = """
WITH old AS (
    SELECT id FROM work_orders o
     WHERE state = 'ended' AND ended_at < now() - make_interval(days => :days)
       AND NOT EXISTS (SELECT FROM work_order_keys k WHERE k.order_id = o.id AND k.expires_at > now())
     ORDER BY ended_at
     LIMIT :limit
       FOR UPDATE SKIP LOCKED
), parts AS (
    DELETE FROM work_order_parts WHERE order_id = ANY(ARRAY(SELECT id FROM old))
), trail AS (
    DELETE FROM work_order_trail WHERE order_id = ANY(ARRAY(SELECT id FROM old))
)
DELETE FROM work_orders WHERE id = ANY(ARRAY(SELECT id FROM old))
"""

AGED: Final[dict[Aged, str]] = {
    "done_effects": _EFFECTS.format(status="done"),
    "failed_effects": _EFFECTS.format(status="failed"),
    "deliveries": _DELIVERIES,
    "inbox": _INBOX,
    "firings": _FIRINGS,
    "work_orders": _WORK_ORDERS,
}
"""Kinds of rows that are deleted by age alone, and their statements."""

# For a day, from which a client resumes, and an hour, far above the longest time for which a transaction may hold back
# the reader of changes. By tenant, since the rows have no index by time: the oldest one says whether there is anything.
_CHANGES = """
DELETE FROM changes
 WHERE ctid = ANY(ARRAY(
       SELECT old.ctid
         FROM (SELECT id FROM tenants UNION ALL SELECT '') AS t
        CROSS JOIN LATERAL (SELECT c.at FROM changes c WHERE c.tenant_id = t.id ORDER BY c.xact, c.id LIMIT 1) AS first
        CROSS JOIN LATERAL (SELECT c.ctid, c.at FROM changes c
                             WHERE c.tenant_id = t.id AND first.at < now() - make_interval(hours => :hours)
                             ORDER BY c.xact, c.id
                             LIMIT :limit) AS old
        WHERE old.at < now() - make_interval(hours => :hours)
        LIMIT :limit))
"""
_CHANGES_HOURS = KEPT_S // 3600 + 1

_POLICY = """
SELECT (spec -> 'retention' ->> 'after_days')::int AS after_days, spec -> 'retention' ->> 'keep' AS keep
  FROM agents
 WHERE tenant_id = :tenant_id AND id = :agent_id AND jsonb_typeof(spec -> 'retention') = 'object'
"""

# Threads of an agent in order of creation; the walk ends at the first that is younger than the policy's age. A thread
# is due if it was not used for that long, has no open run, belongs to no open task, and is the thread of no trigger.
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
         WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND deleted_at IS NULL AND ephemeral = false
           AND id > :after_thread_id
         ORDER BY id
         LIMIT :limit) t
 WHERE t.created_at < now() - make_interval(days => :after_days)
 ORDER BY t.id
"""


@dataclass(frozen=True, slots=True)
class ThreadPolicy:
    """An agent's retention policy for unused threads.

    Attributes:
        after_days: Days without use.
        keep: ``none`` deletes the thread, ``latest`` all but its latest turn.
    """

    after_days: int
    keep: KeptTurns


@dataclass(frozen=True, slots=True)
class WalkedThread:
    """A thread of the walk, and whether the policy applies to it."""

    id: str
    due: bool


async def delete_aged(connection: Connection, what: Aged, *, days: int, limit: int) -> int:
    """Delete the oldest rows of a kind that are older than `days`, at most `limit`, and return how many."""
    return _count(await connection.execute(AGED[what], days=days, limit=limit))


async def delete_old_changes(connection: Connection, *, limit: int) -> int:
    """Delete the oldest changes that no stream resumes from any more, at most `limit`, and return how many."""
    return _count(await connection.execute(_CHANGES, hours=_CHANGES_HOURS, limit=limit))


async def thread_policy(connection: Connection, cursor: Cursor) -> ThreadPolicy | None:
    """Return the policy of the cursor's agent; None if it no longer has one."""
    row = await connection.fetchrow(_POLICY, tenant_id=cursor.tenant_id, agent_id=cursor.target)
    return None if row is None else ThreadPolicy(row["after_days"], row["keep"])


async def walk_threads(
    connection: Connection, cursor: Cursor, policy: ThreadPolicy, *, limit: int
) -> Sequence[WalkedThread]:
    """Return the next threads of an agent after the cursor's position, up to the first that is too young."""
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
