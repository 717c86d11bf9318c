"""How long work has been due that nothing has done yet."""

from __future__ import annotations

from collections.abc import Mapping

from nova_workers.ledger.database import Connection

# Each from its partial index of open work, so the cost grows with the backlog only.
_OVERDUE = """
SELECT what, GREATEST(EXTRACT(EPOCH FROM now() - since)::float8, 0) AS age_s
  FROM (SELECT 'effects' AS what, min(due_at) AS since
          FROM effects
         WHERE status = 'pending'
        UNION ALL
        SELECT 'deliveries', min(due_at)
          FROM deliveries
         WHERE status = 'pending' AND target <> 'user'
        UNION ALL
        SELECT 'triggers', min(next_fire_at)
          FROM triggers
         WHERE next_fire_at IS NOT NULL AND enabled AND deleted_at IS NULL
        UNION ALL
        SELECT 'waits', min(due_at)
          FROM run_waits
         WHERE status = 'open') AS oldest
"""


async def overdue_ages_s(connection: Connection) -> Mapping[str, float]:
    """Return for each kind of work how long the oldest of all tenants has been due, in seconds; 0 if none is."""
    return {row["what"]: row["age_s"] or 0.0 for row in await connection.fetch(_OVERDUE)}
