"""What models did in the agents of orchestrations, by tenant and kind of work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.vocabulary import TASK_CATEGORIES, TaskCategory
from nova_workers.ledger.database import Connection

_FAILURES_OF_THE_FLEET = ("worker_lost", "rate_limit", "auth_failure", "budget_exceeded", "engine_error")
"""Kinds of failure that say nothing about the model."""

# Computes the rankings of every tenant whose latest are older than `fresh_s`, from runs of agents that ended in the
# last `days`; rows without such runs are deleted. A second execution finds nothing due. Of two at once the later one
# does nothing (advisory lock), so they cannot deadlock. The score is 0.8 of success, and 0.1 each of cost and time in
# relation to the best model of the category; an unknown cost counts as half of the best.
_REFRESH = """
WITH alone AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(hashtextextended('nova model rankings', 0)) AS held
), due AS MATERIALIZED (
    SELECT t.id
      FROM tenants t JOIN alone ON alone.held
     WHERE t.ending_at IS NULL
       AND NOT EXISTS (SELECT FROM model_rankings m
                        WHERE m.tenant_id = t.id AND m.refreshed_at > now() - make_interval(secs => :fresh_s))
), observed AS MATERIALIZED (
    SELECT a.tenant_id, a.category, u.model, count(*)::int AS samples,
           avg((r.status = 'succeeded')::int)::float8 AS success_rate,
           avg(u.cost_usd) AS mean_cost_usd, avg(u.duration_ms)::float8 AS mean_duration_ms
      FROM orchestration_agents a
      JOIN due ON due.id = a.tenant_id
      JOIN runs r ON r.thread_id = a.thread_id
      JOIN usage u ON u.run_id = r.id
     WHERE a.ended_at > now() - make_interval(days => :days) AND a.category = ANY(:categories::text[])
       AND u.model IS NOT NULL
       AND (r.status = 'succeeded'
            OR (r.status = 'failed' AND NOT COALESCE(r.error_kind, '') = ANY(:not_of_the_model::text[])))
     GROUP BY a.tenant_id, a.category, u.model
), scored AS (
    SELECT o.*, 0.8 * o.success_rate
                + 0.1 * COALESCE((min(o.mean_cost_usd) OVER best / NULLIF(o.mean_cost_usd, 0))::float8,
                                 CASE WHEN o.mean_cost_usd = 0 THEN 1 ELSE 0.5 END)
                + 0.1 * COALESCE(min(o.mean_duration_ms) OVER best / NULLIF(o.mean_duration_ms, 0), 1) AS score
      FROM observed o
    WINDOW best AS (PARTITION BY o.tenant_id, o.category)
), dropped AS (
    DELETE FROM model_rankings m USING due
     WHERE m.tenant_id = due.id
       AND NOT EXISTS (SELECT FROM observed o
                        WHERE (o.tenant_id, o.category, o.model) = (m.tenant_id, m.category, m.model))
), kept AS (
    INSERT INTO model_rankings AS m (tenant_id, category, model, samples, success_rate, mean_cost_usd,
                                     mean_duration_ms, score, refreshed_at)
    SELECT tenant_id, category, model, samples, success_rate, mean_cost_usd, mean_duration_ms, score, now() FROM scored
    ON CONFLICT (tenant_id, category, model) DO UPDATE
       SET samples = EXCLUDED.samples, success_rate = EXCLUDED.success_rate, mean_cost_usd = EXCLUDED.mean_cost_usd,
           mean_duration_ms = EXCLUDED.mean_duration_ms, score = EXCLUDED.score, refreshed_at = EXCLUDED.refreshed_at
    RETURNING 1
)
SELECT count(*) FROM kept
"""

_LIST = """
SELECT category, model, samples, success_rate, mean_cost_usd::float8 AS mean_cost_usd, mean_duration_ms, score,
       refreshed_at
  FROM model_rankings
 WHERE tenant_id = :tenant_id
 ORDER BY category, model
"""


@dataclass(frozen=True, slots=True)
class Ranking:
    """How a model did in a kind of work.

    Attributes:
        model: As usage names it.
        samples: Ended runs.
        success_rate: From 0 to 1.
        mean_cost_usd: Of a run; None if no cost is known.
        mean_duration_ms: Of a run.
        score: From 0 to 1.
    """

    category: TaskCategory
    model: str
    samples: int
    success_rate: float
    mean_cost_usd: float | None
    mean_duration_ms: float | None
    score: float
    refreshed_at: datetime


async def refresh_rankings(connection: Connection, *, fresh_s: float, days: int) -> int:
    """Compute the rankings that are older than `fresh_s` again. Idempotent; one transaction.

    Args:
        connection: Where.
        fresh_s: Seconds in which a tenant's rankings are not computed again.
        days: How far back runs count.

    Returns:
        The number of rankings written.
    """
    return await connection.fetchval(
        _REFRESH,
        fresh_s=fresh_s,
        days=days,
        categories=list(TASK_CATEGORIES),
        not_of_the_model=list(_FAILURES_OF_THE_FLEET),
    )


async def list_rankings(connection: Connection, tenant_id: str) -> list[Ranking]:
    """Return a tenant's rankings: at most one for each model and kind of work."""
    return [Ranking(**row) for row in await connection.fetch(_LIST, tenant_id=tenant_id)]
