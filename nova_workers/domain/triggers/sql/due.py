"""Locks triggers, and reads the state on which the outcome of their occurrences depends.

Locks are never waited for (SKIP LOCKED), so two ticks cannot deadlock; only `take_one`, for a person, waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from nova_workers.base.errors import deleted, missing
from nova_workers.base.vocabulary import DUE_RUNS, sql_list
from nova_workers.contracts.http.triggers import CatchUp, Overlap, TriggerAction, TriggerKind
from nova_workers.domain.runs.sql.claim import PAUSED_BY_PEOPLE
from nova_workers.ledger.database import Connection, Row

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
t.action, t.jitter_s, t.overlap, t.catchup_s, t.catchup, t.max_runs_per_day, t.max_cost_usd_per_day, t.gate,
t.gate_seen, t.next_slot_at, t.next_fire_at,
t.deleted_at IS NOT NULL OR t.paused_reason IS NOT NULL AS stopped
"""

# Triggers that start orchestrations and are due, or have a queued occurrence that neither an open run nor a pause holds
# back: a pause may last for days, and planning is work. The queued ones come in any order, so that many that cannot be
# planned do not keep the limit from all others.
_ORCHESTRATING = f"""
(SELECT t.id, t.tenant_id, t.agent_id, t.prompt
   FROM triggers t WHERE t.next_fire_at <= now() AND t.action = 'orchestrate'
  ORDER BY t.next_fire_at LIMIT :limit)
UNION
(SELECT r.id, r.tenant_id, r.agent_id, r.prompt
   FROM triggers r
  WHERE r.id IN (SELECT f.trigger_id FROM trigger_firings f WHERE f.outcome = 'queued') AND r.action = 'orchestrate'
    AND (r.deleted_at IS NOT NULL OR r.paused_reason IS NOT NULL OR NOT {PAUSED_BY_PEOPLE})
    AND NOT EXISTS (SELECT FROM runs o WHERE o.trigger_id = r.id AND o.status IN {_OPEN})
  ORDER BY random() LIMIT :limit)
"""

# Materialized, so that the plan starts with the due triggers whatever the statistics say. Triggers that another tick
# has locked are skipped.
_TAKE_DUE = f"""
WITH locked AS MATERIALIZED (
    SELECT {_COLUMNS} FROM triggers t
     WHERE t.next_fire_at <= now() AND (t.action = 'run' OR t.id = ANY(:planned::text[]))
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
   AND (r.action = 'run' OR r.id = ANY(:planned::text[]))
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

_IS_DELETED = "SELECT deleted_at IS NOT NULL FROM triggers WHERE tenant_id = :tenant_id AND id = :trigger_id"


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
    action: TriggerAction
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
class OrchestratingTrigger:
    """A trigger that may start an orchestration: its agent and the task."""

    id: str
    tenant_id: str
    agent_id: str
    task: str


@dataclass(frozen=True, slots=True)
class QueuedOccurrence:
    """An occurrence that waits until no run of an earlier one is open."""

    id: str
    scheduled_for: datetime


async def find_orchestrating(connection: Connection, *, limit: int) -> list[OrchestratingTrigger]:
    """Return triggers that may start an orchestration now."""
    rows = await connection.fetch(_ORCHESTRATING, limit=limit)
    return [OrchestratingTrigger(row["id"], row["tenant_id"], row["agent_id"], row["prompt"]) for row in rows]


async def take_due(connection: Connection, *, planned: Sequence[str], limit: int) -> list[DueTrigger]:
    """Lock due triggers, the longest due first. Triggers that another process has locked are skipped.

    Args:
        connection: In a transaction.
        planned: Triggers whose orchestration can be started; others that start one stay due.
        limit: Most triggers to return.
    """
    return [_due(row) for row in await connection.fetch(_TAKE_DUE, planned=list(planned), limit=limit)]


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
        raise deleted("trigger", trigger_id)
    raise missing("trigger", trigger_id)


async def take_queued(
    connection: Connection, *, planned: Sequence[str], limit: int
) -> list[tuple[DueTrigger, QueuedOccurrence]]:
    """Lock triggers whose oldest queued occurrence may begin or must be skipped, and return both.

    `planned` is that of `take_due`.
    """
    ids = [row["id"] for row in await connection.fetch(_LOCK_QUEUED, planned=list(planned), limit=limit)]
    if not ids:
        return []
    occurrences = {
        row["trigger_id"]: QueuedOccurrence(row["id"], row["scheduled_for"])
        for row in await connection.fetch(_OLDEST_QUEUED, trigger_ids=ids)
    }
    triggers = [_due(row) for row in await connection.fetch(_FACTS_OF, trigger_ids=ids)]
    return [(trigger, occurrences[trigger.id]) for trigger in triggers if trigger.id in occurrences]


def _due(row: Row) -> DueTrigger:
    values: dict[str, Any] = dict(row)
    open_runs: tuple[str, ...] = tuple(values.pop("open_runs"))
    return DueTrigger(**values, open_runs=open_runs)
