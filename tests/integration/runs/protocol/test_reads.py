"""What the statements of a run's life read does not grow with the open runs of other threads."""

from __future__ import annotations

from nova_workers.base.ids import new_id
from nova_workers.contracts.content import text_block
from nova_workers.contracts.runs import Claim, Submission
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.runs.sql.finish import finish_run, requeue_run
from nova_workers.domain.runs.sql.leases import is_held, renew_leases
from nova_workers.domain.runs.sql.submit import insert_run_on_new_thread
from nova_workers.ledger.database import Connection
from tests.bench.ends import PLAIN_END
from tests.support.data.reads import entries_read
from tests.support.harness.workers import Harness

_MANY_OPEN = """
WITH made AS (
    INSERT INTO threads (id, tenant_id, agent_id, next_seq)
    SELECT 'thr_' || i, :tenant_id, 'scripted', 2 FROM generate_series(1, 3000) i
    RETURNING id, tenant_id, agent_id
)
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, lease_expires_at)
SELECT 'run_' || id || status, tenant_id, id, agent_id, seq, '[]', status, lease_expires_at
  FROM made, (VALUES ('running', 1, now() + interval '1 hour'), ('queued', 2, NULL))
               AS of (status, seq, lease_expires_at)
"""


async def _live(connection: Connection, thread_id: str) -> None:
    """Lead a run from its claim to its end, with a renewed lease and a requeue in between."""
    for end in ("requeue", "finish"):
        claim = await claim_next(connection, thread_id, worker_id="wkr_1", lease_ttl_s=60, max_attempts=5)
        assert isinstance(claim, Claim)
        assert len(await renew_leases(connection, [claim], 60)) == 1
        assert await is_held(connection, claim.run_id, claim.fence)
        if end == "requeue":
            await requeue_run(connection, claim)
        else:
            await finish_run(connection, claim, PLAIN_END, seq=2)


async def test_transitions_read_few_rows_beside_thousands_of_open_runs(harness: Harness) -> None:
    """Also with the plans of a session that knew the table while few were open."""
    async with harness.database.transaction() as connection:

        async def submit() -> str:
            submission = Submission(harness.tenant_id, (text_block("Hello"),), agent_id="scripted")
            accepted = await insert_run_on_new_thread(connection, submission, new_id("run"))
            assert accepted is not None
            return accepted.thread_id

        for number in range(60):
            await _live(connection, await submit())
            if number == 50:
                await connection.execute("ANALYZE runs, threads, turns, messages")
        await connection.execute(_MANY_OPEN, tenant_id=harness.tenant_id)
        before = await entries_read(connection, "runs")
        await _live(connection, await submit())
        assert await entries_read(connection, "runs") - before < 100
