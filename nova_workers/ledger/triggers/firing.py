"""Fires trigger occurrences, each exactly once.

A trigger's row is locked while its occurrences are handled, and one transaction writes all results: the outcome of each
occurrence, the runs, and the next occurrence. A crash before the commit leaves the trigger due; a second process finds
it moved. The unique index on an occurrence's row is the second guard.

Lock order: triggers, then threads by id, then runs. Trigger locks are never waited for here (SKIP LOCKED), so two ticks
cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from nova_workers.contracts.http.triggers import CatchUp, FiringOutcome, Overlap, SkipReason, TriggerKind
from nova_workers.contracts.runs import Doorbell
from nova_workers.errors import Gone, NotFound
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.inserts import insert_runs, insert_threads
from nova_workers.ledger.runs.claim import PAUSED_BY_PEOPLE
from nova_workers.vocabulary import DUE_RUNS, sql_list

__all__ = [
    "DueTrigger",
    "Move",
    "NewFiring",
    "QueuedOccurrence",
    "begin_queued",
    "insert_firings",
    "lock_threads",
    "move_triggers",
    "postpone",
    "skip_queued",
    "take_again",
    "take_due",
    "take_one",
    "take_queued",
]

_OPEN = sql_list(DUE_RUNS)
_MOST_OPEN = 100
"""Most open runs of one trigger that are read."""

# State of locked triggers, named r here: pauses, open runs, queued occurrences.
_FACTS = f"""
SELECT r.*, now() AS now, n.timezone AS tenant_timezone,
       EXISTS (SELECT FROM agents a WHERE a.tenant_id = r.tenant_id AND a.id = r.agent_id AND a.deleted_at IS NULL)
           AS agent_lives,
       {PAUSED_BY_PEOPLE} AS held,
       ARRAY(SELECT o.id FROM runs o WHERE o.trigger_id = r.id AND o.status IN {_OPEN} LIMIT {_MOST_OPEN}) AS open_runs,
       (SELECT count(*) FROM trigger_firings f WHERE f.trigger_id = r.id AND f.outcome = 'queued')::int
         AS queued_occurrences
  FROM locked r JOIN tenants n ON n.id = r.tenant_id
"""

_COLUMNS = """
t.id, t.tenant_id, t.agent_id, t.kind, t.schedule, t.timezone, t.starts_at, t.ends_at, t.created_at, t.thread_id,
t.jitter_s, t.overlap, t.catchup_s, t.catchup, t.max_runs_per_day, t.max_cost_usd_per_day, t.gate, t.gate_seen,
t.next_slot_at, t.next_fire_at, t.deleted_at IS NOT NULL OR t.paused_reason IS NOT NULL AS stopped
"""

# Materialized, so that the plan starts with the due triggers whatever the statistics say. Triggers that another tick
# has locked are skipped.
_TAKE_DUE = f"""
WITH locked AS MATERIALIZED (
    SELECT {_COLUMNS} FROM triggers t
     WHERE t.next_fire_at <= now()
     ORDER BY t.next_fire_at
     LIMIT :limit
       FOR UPDATE SKIP LOCKED
)
{_FACTS}
"""

# Locks triggers again after their gates were evaluated. A trigger that changed meanwhile has another `next_fire_at`,
# and is left out.
_TAKE_AGAIN = f"""
WITH locked AS MATERIALIZED (
    SELECT {_COLUMNS} FROM triggers t
      JOIN unnest(:trigger_ids::text[], :leased_until::timestamptz[]) AS g (id, leased_until) ON g.id = t.id
     WHERE t.next_fire_at = g.leased_until
       FOR UPDATE OF t SKIP LOCKED
)
{_FACTS}
"""

_TAKE_ONE = f"""
WITH locked AS MATERIALIZED (
    SELECT {_COLUMNS} FROM triggers t WHERE t.tenant_id = :tenant_id AND t.id = :trigger_id
      AND t.deleted_at IS NULL FOR UPDATE
)
{_FACTS}
"""
# Triggers whose oldest queued occurrence may begin, or never will. A second statement reads their state, and so sees
# what was committed before the lock: a process that begins a run of a trigger holds its row.
_LOCK_QUEUED = f"""
SELECT r.id
  FROM triggers r
 WHERE r.id IN (SELECT f.trigger_id FROM trigger_firings f WHERE f.outcome = 'queued')
   AND (r.deleted_at IS NOT NULL OR r.paused_reason IS NOT NULL
        OR NOT {PAUSED_BY_PEOPLE} AND NOT EXISTS (SELECT FROM runs o WHERE o.trigger_id = r.id AND o.status IN {_OPEN}))
 ORDER BY r.id
 LIMIT :limit
   FOR UPDATE OF r SKIP LOCKED
"""
_FACTS_OF = f"""
WITH locked AS MATERIALIZED (SELECT {_COLUMNS} FROM triggers t WHERE t.id = ANY(:trigger_ids::text[]))
{_FACTS}
"""
_OLDEST_QUEUED = """
SELECT DISTINCT ON (trigger_id) id, trigger_id, scheduled_for
  FROM trigger_firings
 WHERE trigger_id = ANY(:trigger_ids::text[]) AND outcome = 'queued'
 ORDER BY trigger_id, scheduled_for
"""
_SKIP_QUEUED = """
UPDATE trigger_firings SET outcome = 'skipped', skip_reason = :skip_reason, detail = :detail
 WHERE trigger_id = :trigger_id AND outcome = 'queued'
"""

_IS_DELETED = "SELECT deleted_at IS NOT NULL FROM triggers WHERE tenant_id = :tenant_id AND id = :trigger_id"

_LOCK_THREADS = (
    "SELECT id FROM threads WHERE id = ANY(:thread_ids::text[]) AND deleted_at IS NULL ORDER BY id FOR UPDATE"
)

_RUNS = insert_runs(
    "firing f LEFT JOIN lines l ON l.id = f.thread_id",
    id="f.run_id",
    tenant_id="f.tenant_id",
    thread_id="f.thread_id",
    agent_id="COALESCE(l.agent_id, f.agent_id)",
    seq="""CASE WHEN f.new_thread THEN 1
            ELSE l.first_seq + row_number() OVER (PARTITION BY f.thread_id ORDER BY f.place) - 1 END""",
    content="jsonb_build_array(jsonb_build_object('type', 'text', 'text', f.prompt))",
    queue="'background'",
    source="'trigger'",
    meta="""jsonb_build_object('trigger_id', f.trigger_id, 'scheduled_for', to_char(
                f.scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))""",
    trigger_id="f.trigger_id",
)


# Two ways to record occurrences: new rows, or outcomes of queued ones. An occurrence that has a row already fires
# nothing.
_NEW_ROWS = """
    INSERT INTO trigger_firings (id, tenant_id, trigger_id, scheduled_for, outcome, run_id, skip_reason, detail, manual)
    SELECT g.id, t.tenant_id, g.trigger_id, g.scheduled_for, g.outcome, g.run_id, g.skip_reason, g.detail, g.manual
      FROM given g JOIN triggers t ON t.id = g.trigger_id
    ON CONFLICT (trigger_id, scheduled_for) DO NOTHING
    RETURNING id, tenant_id
"""
_QUEUED_ROWS = """
    UPDATE trigger_firings f
       SET outcome = g.outcome, run_id = g.run_id, skip_reason = g.skip_reason, detail = g.detail, fired_at = now()
      FROM given g
     WHERE f.id = g.id AND f.outcome = 'queued'
    RETURNING f.id, f.tenant_id
"""


def _writing(rows: str) -> str:
    """Return the statement that writes a batch of firings with their threads and runs."""
    return f"""
WITH given AS (
    SELECT *
      FROM unnest(:id::text[], :trigger_id::text[], :scheduled_for::timestamptz[], :outcome::text[], :run_id::text[],
                  :thread_id::text[], :new_thread::boolean[], :skip_reason::text[], :detail::text[], :manual::boolean[])
           WITH ORDINALITY
        AS g (id, trigger_id, scheduled_for, outcome, run_id, thread_id, new_thread, skip_reason, detail, manual, place)
), kept AS ({rows}), firing AS MATERIALIZED (
    SELECT g.*, k.tenant_id, t.agent_id, t.prompt
      FROM given g JOIN kept k ON k.id = g.id JOIN triggers t ON t.id = g.trigger_id
     WHERE g.run_id IS NOT NULL
), made AS (
    {insert_threads("firing WHERE new_thread", id="thread_id", agent_id="agent_id")}
), lines AS (
    UPDATE threads t
       SET next_seq = t.next_seq + f.runs, updated_at = now()
      FROM (SELECT thread_id, count(*) AS runs FROM firing WHERE NOT new_thread GROUP BY thread_id) f
     WHERE t.id = f.thread_id
    RETURNING t.id, t.agent_id, t.next_seq - f.runs AS first_seq
)
{_RUNS}
"""


_INSERT = _writing(_NEW_ROWS)
_BEGIN = _writing(_QUEUED_ROWS)

_MOVE = """
UPDATE triggers t
   SET next_slot_at = g.next_slot_at, next_fire_at = g.next_fire_at, enabled = t.enabled AND NOT g.over,
       paused_reason = COALESCE(g.paused_reason, t.paused_reason), gate_seen = COALESCE(g.gate_seen, t.gate_seen)
  FROM unnest(:trigger_id::text[], :next_slot_at::timestamptz[], :next_fire_at::timestamptz[], :over::boolean[],
              :paused_reason::text[], :gate_seen::text[])
    AS g (id, next_slot_at, next_fire_at, over, paused_reason, gate_seen)
 WHERE t.id = g.id
"""

_POSTPONE = (
    "UPDATE triggers SET next_fire_at = now() + interval '5 minutes' WHERE id = :trigger_id AND next_fire_at <= now()"
)


@dataclass(frozen=True, slots=True)
class DueTrigger:
    """A locked trigger and its state.

    Attributes:
        now: The database's clock.
        next_slot_at: The first occurrence without an outcome; None for a trigger that was taken although not due.
        tenant_timezone: Time zone of the tenant's days.
        agent_lives: Whether its agent exists.
        held: Whether the agent, the tenant or the fleet is paused.
        stopped: Whether the trigger is deleted or paused.
        open_runs: Open runs of earlier occurrences.
        queued_occurrences: Earlier occurrences that wait for those runs.
    """

    id: str
    tenant_id: str
    agent_id: str
    kind: TriggerKind
    schedule: str
    timezone: str
    starts_at: datetime | None
    ends_at: datetime | None
    created_at: datetime
    thread_id: str | None
    jitter_s: int
    overlap: Overlap
    catchup_s: int
    catchup: CatchUp
    max_runs_per_day: int | None
    max_cost_usd_per_day: Decimal | None
    gate: dict[str, Any] | None
    gate_seen: str | None
    next_slot_at: datetime | None
    next_fire_at: datetime | None
    now: datetime
    tenant_timezone: str
    agent_lives: bool
    held: bool
    stopped: bool
    open_runs: tuple[str, ...]
    queued_occurrences: int


@dataclass(frozen=True, slots=True)
class NewFiring:
    """The outcome of one occurrence. With a `run_id` a run begins, in `thread_id`."""

    id: str
    trigger_id: str
    scheduled_for: datetime
    outcome: FiringOutcome
    run_id: str | None = None
    thread_id: str | None = None
    new_thread: bool = False
    skip_reason: SkipReason | None = None
    detail: str | None = None
    manual: bool = False


@dataclass(frozen=True, slots=True)
class QueuedOccurrence:
    """An occurrence that waits until no run of an earlier one is open."""

    id: str
    scheduled_for: datetime


@dataclass(frozen=True, slots=True)
class Move:
    """The state of a trigger after its occurrences were handled.

    Attributes:
        over: It has no more occurrences and is disabled.
        paused_reason: Why it no longer fires; None changes nothing.
        gate_seen: What its gate saw; None changes nothing.
    """

    trigger_id: str
    next_slot_at: datetime | None
    next_fire_at: datetime | None
    over: bool = False
    paused_reason: str | None = None
    gate_seen: str | None = None


async def take_due(connection: Connection, *, limit: int) -> list[DueTrigger]:
    """Lock due triggers, the longest due first. Triggers that another process has locked are skipped."""
    return [_due(row) for row in await connection.fetch(_TAKE_DUE, limit=limit)]


async def take_again(connection: Connection, leases: Sequence[tuple[str, datetime]]) -> list[DueTrigger]:
    """Lock triggers that were postponed until the given moments, if they are unchanged."""
    ids, until = [each[0] for each in leases], [each[1] for each in leases]
    return [_due(row) for row in await connection.fetch(_TAKE_AGAIN, trigger_ids=ids, leased_until=until)]


async def take_one(connection: Connection, tenant_id: str, trigger_id: str) -> DueTrigger:
    """Lock one trigger, due or not.

    Raises:
        NotFound: There is no such trigger.
        Gone: It was deleted.
    """
    row = await connection.fetchrow(_TAKE_ONE, tenant_id=tenant_id, trigger_id=trigger_id)
    if row is not None:
        return _due(row)
    if await connection.fetchval(_IS_DELETED, tenant_id=tenant_id, trigger_id=trigger_id):
        raise Gone(f"Trigger {trigger_id!r} was deleted.", trigger_id=trigger_id)
    raise NotFound(f"There is no trigger {trigger_id!r}.", trigger_id=trigger_id)


async def take_queued(connection: Connection, *, limit: int) -> list[tuple[DueTrigger, QueuedOccurrence]]:
    """Lock triggers whose oldest queued occurrence may begin or must be skipped, and return both."""
    ids = [row["id"] for row in await connection.fetch(_LOCK_QUEUED, limit=limit)]
    if not ids:
        return []
    occurrences = {
        row["trigger_id"]: QueuedOccurrence(row["id"], row["scheduled_for"])
        for row in await connection.fetch(_OLDEST_QUEUED, trigger_ids=ids)
    }
    triggers = [_due(row) for row in await connection.fetch(_FACTS_OF, trigger_ids=ids)]
    return [(trigger, occurrences[trigger.id]) for trigger in triggers if trigger.id in occurrences]


async def skip_queued(connection: Connection, trigger_id: str, reason: SkipReason, detail: str) -> None:
    """Skip all queued occurrences of a locked trigger."""
    await connection.execute(_SKIP_QUEUED, trigger_id=trigger_id, skip_reason=reason, detail=detail)


async def lock_threads(connection: Connection, thread_ids: Sequence[str]) -> frozenset[str]:
    """Lock threads in the order of their ids, and return those that exist."""
    return frozenset(row["id"] for row in await connection.fetch(_LOCK_THREADS, thread_ids=sorted(set(thread_ids))))


async def insert_firings(connection: Connection, firings: Sequence[NewFiring]) -> list[Doorbell]:
    """Record new occurrences of locked triggers, insert their runs, and return the runs' doorbells."""
    return await _write(connection, _INSERT, firings)


async def begin_queued(connection: Connection, firings: Sequence[NewFiring]) -> list[Doorbell]:
    """Record outcomes of queued occurrences, insert their runs, and return the runs' doorbells."""
    return await _write(connection, _BEGIN, firings)


async def _write(connection: Connection, statement: str, firings: Sequence[NewFiring]) -> list[Doorbell]:
    rows = await connection.fetch(statement, **_columns(NewFiring, firings))
    return [Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows]


async def move_triggers(connection: Connection, moves: Sequence[Move]) -> None:
    """Store the new state of locked triggers."""
    await connection.execute(_MOVE, **_columns(Move, moves))


async def postpone(connection: Connection, trigger_id: str) -> None:
    """Postpone a trigger that cannot be handled, so that it does not block others."""
    await connection.execute(_POSTPONE, trigger_id=trigger_id)


def _columns(kind: type[NewFiring] | type[Move], rows: Sequence[NewFiring | Move]) -> dict[str, list[object]]:
    return {field.name: [getattr(row, field.name) for row in rows] for field in fields(kind)}


def _due(row: Row) -> DueTrigger:
    values: dict[str, Any] = dict(row)
    open_runs: tuple[str, ...] = tuple(values.pop("open_runs"))
    return DueTrigger(**values, open_runs=open_runs)
