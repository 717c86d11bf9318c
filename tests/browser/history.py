"""A year's history for measurements: many runs in conversations, with their turns, messages and usage."""

from __future__ import annotations

from tests.bench.rows.claims import fill_ledger
from tests.bench.servers import filling

RUNS_A_THREAD = 10

# In ULID order, the newest a minute ago; three of four of the last month, so that plots have something to show.
_SPREAD = """
UPDATE runs SET created_at = began, queued_at = began, started_at = began, finished_at = began + interval '3 seconds',
                agent_id = CASE WHEN n % 3 = 0 THEN 'analyst' ELSE agent_id END,
                status = CASE WHEN n % 50 = 0 THEN 'failed' ELSE status END
  FROM (SELECT id AS run_id, n, now() - interval '1 minute' - (total - n) * interval '30 days' / total AS began
          FROM (SELECT id, row_number() OVER (ORDER BY id) AS n, count(*) OVER () AS total FROM runs) numbered) moved
 WHERE id = run_id
"""
_USAGE = """
INSERT INTO usage (id, tenant_id, run_id, turn_id, thread_id, agent_id, created_at, input_tokens, cost_usd)
SELECT 'use_' || right(id, 26), tenant_id, id, turn_id, thread_id, agent_id, finished_at, spent, spent / 1000000.0
  FROM (SELECT *, abs(hashtext(id)) % 90000 AS spent FROM runs) AS each
"""


async def fill_history(database_url: str, tenant_id: str, runs: int) -> None:
    """Replace all conversations of an idle fleet by `runs` runs in a tenth as many threads, over 30 days."""
    await fill_ledger(database_url, runs, tenant_id=tenant_id)
    async with filling(database_url) as database:
        await database.execute(_SPREAD)
        await database.execute(_USAGE)
        await database.execute("VACUUM ANALYZE runs, usage")
