"""Usage reports: sums over the usage rows of runs and compactions."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from nova_workers.contracts.http.usage_report import UsageGrouping, UsageReport, UsageSum
from nova_workers.ledger.database import Connection

_KEYS: Final = {
    "agent": "u.agent_id",
    "day": "to_char(u.created_at AT TIME ZONE :timezone, 'YYYY-MM-DD')",
    "model": "u.model",
}
_ORDERS: Final = {"agent": "cost_usd DESC NULLS LAST, tokens DESC, key", "day": "key DESC"}

# One scan of the tenant's rows of the period gives the groups and their total. Names in braces come from the maps
# above.
_REPORT = """
SELECT sums.*, count(*) OVER () AS groups_total
  FROM (SELECT {key} AS key, grouping({key}) = 1 AS is_total, :timezone::text AS timezone,
               count(u.run_id)::int AS runs, COALESCE(sum(u.model_calls), 0)::bigint AS model_calls,
               COALESCE(sum(u.input_tokens), 0)::bigint AS input_tokens,
               COALESCE(sum(u.output_tokens), 0)::bigint AS output_tokens,
               COALESCE(sum(u.cache_read_tokens), 0)::bigint AS cache_read_tokens,
               COALESCE(sum(u.cache_write_tokens), 0)::bigint AS cache_write_tokens,
               COALESCE(sum(u.reasoning_tokens), 0)::bigint AS reasoning_tokens,
               sum(u.cost_usd)::float8 AS cost_usd,
               count(*) FILTER (WHERE u.cost_usd IS NULL AND u.model_calls > 0)::int AS unpriced,
               sum(u.input_tokens + u.output_tokens) AS tokens
          FROM usage u
         WHERE u.tenant_id = :tenant_id AND u.created_at >= :since AND u.created_at < :until
         GROUP BY GROUPING SETS (({key}), ())) sums
 ORDER BY is_total DESC, {order}
 LIMIT :limit + 1
"""


async def report_usage(
    connection: Connection,
    tenant_id: str,
    *,
    group_by: UsageGrouping,
    since: datetime,
    until: datetime,
    timezone: str,
    limit: int,
) -> UsageReport:
    """Return the usage of a tenant.

    Args:
        since: Start of the period, inclusive.
        until: End of the period, exclusive.
        timezone: IANA name of the time zone of the days.
        limit: Most groups; the total is over all.
    """
    query = _REPORT.format(key=_KEYS[group_by], order=_ORDERS.get(group_by, _ORDERS["agent"]))
    rows = await connection.fetch(query, tenant_id=tenant_id, since=since, until=until, timezone=timezone, limit=limit)
    # The total always exists, and comes first.
    total, groups = rows[0], rows[1:]
    return UsageReport(
        group_by=group_by,
        since=since,
        until=until,
        timezone=timezone,
        groups=[UsageSum(**row) for row in groups],
        groups_total=total["groups_total"] - 1,
        total=UsageSum(**total),
    )
