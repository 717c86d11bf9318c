"""What runs longest now, and what ended in the last minute."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.contracts.http.fleet import LastMinute, LongRun
from nova_workers.ledger.database import Connection

MOST_LONG_RUNS = 10

# From the partial index of running runs: the cost grows with these only.
_LONGEST = """
SELECT id AS run_id, thread_id, agent_id, queue, attempt,
       GREATEST(EXTRACT(EPOCH FROM now() - started_at)::float8, 0) AS elapsed_s
  FROM runs
 WHERE status = 'running' AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
 ORDER BY started_at, id
 LIMIT :limit
"""

# By the index of ends: the cost is that of the runs of one minute.
_LAST_MINUTE = """
SELECT count(*)::int AS ended, count(*) FILTER (WHERE r.status = 'failed')::int AS failed,
       COALESCE(sum(u.input_tokens + u.cache_read_tokens + u.cache_write_tokens), 0)::bigint AS input_tokens,
       COALESCE(sum(u.output_tokens), 0)::bigint AS output_tokens,
       COALESCE(sum(u.cost_usd), 0)::float8 AS cost_usd
  FROM runs r
  LEFT JOIN usage u ON u.run_id = r.id
 WHERE r.finished_at > now() - interval '1 minute' AND (:tenant_id::text IS NULL OR r.tenant_id = :tenant_id)
"""


async def longest_running(connection: Connection, tenant_id: str | None) -> Sequence[LongRun]:
    """Return the running runs that began first, of one tenant or of all; at most ten."""
    return [LongRun(**row) for row in await connection.fetch(_LONGEST, tenant_id=tenant_id, limit=MOST_LONG_RUNS)]


async def last_minute(connection: Connection, tenant_id: str | None) -> LastMinute:
    """Return the runs that ended in the last minute, counted, of one tenant or of all."""
    row = await connection.fetchrow(_LAST_MINUTE, tenant_id=tenant_id)
    assert row is not None  # noqa: S101 - it has one row
    return LastMinute(**row)
