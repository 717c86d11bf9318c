"""Outcomes of trigger occurrences: their runs' ends, failures in a row, and the list of firings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from nova_workers.base.errors import existing
from nova_workers.base.vocabulary import DUE_RUNS, sql_list
from nova_workers.contracts.http.triggers import TriggerFiringView
from nova_workers.ledger.database import Connection, Row

# Runs and cost since a moment of each trigger, counted as daily budgets count: usage of runs that ended since then, and
# what open runs have used, unless they only waited or were queued. Costs of other agents that these runs called are not
# included; those of the agents of an orchestration are. Refused: the newest run was, by the trigger's own budget, and
# the trigger was not changed afterwards.
_SPENT = f"""
SELECT g.id, count(r.id) FILTER (WHERE r.trigger_id = g.id AND r.created_at >= g.since)::int AS runs,
       COALESCE(sum(COALESCE(u.cost_usd, t.cost_usd)), 0) AS cost_usd,
       COALESCE((SELECT n.status = 'failed' AND n.error_kind = 'budget_exceeded' AND n.refused_by = 'trigger'
                        AND n.finished_at > (SELECT h.updated_at FROM triggers h WHERE h.id = g.id)
                   FROM runs n
                  WHERE n.trigger_id = g.id AND n.created_at >= g.since
                  ORDER BY n.created_at DESC
                  LIMIT 1), false) AS refused
  FROM unnest(:trigger_ids::text[], :moments::timestamptz[]) AS g (id, since)
  LEFT JOIN LATERAL (
      SELECT * FROM runs WHERE trigger_id = g.id AND created_at >= g.since - interval '7 days'
      UNION ALL
      SELECT w.*
        FROM runs m JOIN orchestrations o ON o.thread_id = m.thread_id
        JOIN orchestration_agents a ON a.orchestration_id = o.id AND a.id <> o.master_id
        JOIN runs w ON w.thread_id = a.thread_id
       WHERE m.trigger_id = g.id AND m.created_at >= g.since - interval '7 days') r ON true
  LEFT JOIN usage u ON u.run_id = r.id AND u.created_at >= g.since
  LEFT JOIN turns t ON t.id = r.turn_id AND r.status IN {sql_list(DUE_RUNS)}
                   AND (r.status = 'running' OR r.queued_at >= g.since)
 GROUP BY g.id, g.since
"""

_SETTLE_ALONE = "SELECT pg_try_advisory_xact_lock(hashtextextended('triggers:settle', 0))"

# Counts runs that ended since the last pass, in order: a success resets the failures; a canceled run, or one refused by
# a spent budget, does not count. `trigger_told` is set in the same statement, so each run counts once.
_SETTLE = f"""
WITH ended AS (
    SELECT id, trigger_id, finished_at, error_message,
           CASE WHEN error_kind = 'budget_exceeded' THEN 'refused' ELSE status END AS status
      FROM runs
     WHERE trigger_id IS NOT NULL AND NOT trigger_told AND status NOT IN {sql_list(DUE_RUNS)}
     ORDER BY finished_at
     LIMIT :limit
       FOR UPDATE SKIP LOCKED
), recorded AS (
    UPDATE runs r SET trigger_told = true FROM ended e WHERE r.id = e.id
), counted AS (
    SELECT e.trigger_id, bool_or(e.status = 'succeeded') AS succeeded,
           count(*) FILTER (WHERE e.status = 'failed' AND (s.at IS NULL OR e.finished_at > s.at)) AS failed,
           (array_agg(e.error_message ORDER BY e.finished_at DESC) FILTER (WHERE e.status = 'failed'))[1] AS error
      FROM ended e
      LEFT JOIN (SELECT trigger_id, max(finished_at) AS at FROM ended WHERE status = 'succeeded' GROUP BY trigger_id) s
           ON s.trigger_id = e.trigger_id
     GROUP BY e.trigger_id
), sums AS (
    SELECT t.id, t.paused_reason IS NOT NULL AS rested, c.failed, c.error,
           c.failed + CASE WHEN c.succeeded THEN 0 ELSE t.failures END AS failures,
           t.pause_after_failures AS most
      FROM counted c JOIN triggers t ON t.id = c.trigger_id
     WHERE c.succeeded OR c.failed > 0
       FOR UPDATE OF t
)
UPDATE triggers t
   SET failures = s.failures,
       paused_reason = CASE WHEN s.most > 0 AND s.failed > 0 AND s.failures >= s.most
                            THEN COALESCE(t.paused_reason,
                                          format('%s runs in a row failed. The last one: %s', s.failures,
                                                 left(COALESCE(s.error, 'no reason was given'), 500)))
                            ELSE t.paused_reason END,
       next_slot_at = CASE WHEN s.most > 0 AND s.failed > 0 AND s.failures >= s.most THEN NULL ELSE t.next_slot_at END,
       next_fire_at = CASE WHEN s.most > 0 AND s.failed > 0 AND s.failures >= s.most THEN NULL ELSE t.next_fire_at END
  FROM sums s
 WHERE t.id = s.id
RETURNING t.id, t.tenant_id, t.agent_id, t.failures, t.paused_reason,
          t.paused_reason IS NOT NULL AND NOT s.rested AS newly_paused
"""

_LISTED = """
SELECT f.id, f.trigger_id, f.scheduled_for, f.fired_at, f.outcome, f.run_id, r.status AS run_status, r.thread_id,
       f.skip_reason, f.detail, f.manual
  FROM trigger_firings f LEFT JOIN runs r ON r.id = f.run_id AND r.tenant_id = f.tenant_id
"""
_LIST = f"""
{_LISTED}
 WHERE f.tenant_id = :tenant_id AND f.trigger_id = :trigger_id
   AND (:before::timestamptz IS NULL OR f.scheduled_for < :before)
 ORDER BY f.scheduled_for DESC
 LIMIT :limit
"""
_GET = f"{_LISTED} WHERE f.tenant_id = :tenant_id AND f.id = :firing_id"


@dataclass(frozen=True, slots=True)
class Spent:
    """Number and cost of a trigger's runs, and whether its budget affords no call of the next one."""

    runs: int
    cost_usd: Decimal
    refused: bool


async def spent_since(connection: Connection, since: Sequence[tuple[str, datetime]]) -> dict[str, Spent]:
    """Return the number and cost of runs since the given moments, by trigger."""
    ids, moments = [each[0] for each in since], [each[1] for each in since]
    rows = await connection.fetch(_SPENT, trigger_ids=ids, moments=moments)
    return {row["id"]: Spent(row["runs"], row["cost_usd"], row["refused"]) for row in rows}


async def settle(connection: Connection, *, limit: int) -> list[Row]:
    """Count how runs of triggers ended, and pause triggers that failed too often. Call it in a transaction.

    Returns:
        ``id``, ``tenant_id``, ``agent_id``, ``failures``, ``paused_reason`` and ``newly_paused`` of the triggers that
        were touched.
    """
    if not await connection.fetchval(_SETTLE_ALONE):
        return []
    return await connection.fetch(_SETTLE, limit=limit)


async def list_firings(
    connection: Connection, tenant_id: str, trigger_id: str, *, before: datetime | None, limit: int
) -> list[TriggerFiringView]:
    """Return a trigger's firings, latest occurrence first, from before `before`."""
    rows = await connection.fetch(_LIST, tenant_id=tenant_id, trigger_id=trigger_id, before=before, limit=limit)
    return [TriggerFiringView(**row) for row in rows]


async def get_firing(connection: Connection, tenant_id: str, firing_id: str) -> TriggerFiringView:
    """Return one firing.

    Raises:
        NotFound: There is no such firing.
    """
    found = existing(await find_firing(connection, tenant_id, firing_id), "firing", firing_id)
    return found


async def find_firing(connection: Connection, tenant_id: str, firing_id: str) -> TriggerFiringView | None:
    """Return one firing; None if there is none of this id."""
    row = await connection.fetchrow(_GET, tenant_id=tenant_id, firing_id=firing_id)
    return None if row is None else TriggerFiringView(**row)
