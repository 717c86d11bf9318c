"""Many queued runs of one tenant, which keep every worker slot busy."""

from __future__ import annotations

import asyncio

from celery import Celery
from kombu.pools import producers

from nova_workers.broker.celery_app import build_celery
from nova_workers.broker.task_names import TASK_RUN_AGENT
from nova_workers.contracts.runs import Doorbell
from nova_workers.ledger.database import Database

# Each on a thread of its own.
_QUEUE_RUNS = """
WITH made AS (
    INSERT INTO threads (id, tenant_id, agent_id, next_seq)
    SELECT 'thr_' || :tenant_id || lpad(i::text, 8, '0'), :tenant_id, 'nova', 2 FROM generate_series(1, :count::int) i
    RETURNING id, tenant_id, agent_id
)
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content)
SELECT replace(id, 'thr_', 'run_'), tenant_id, id, agent_id, 1, jsonb_build_array(:block::jsonb) FROM made
RETURNING id, thread_id, queue
"""


async def queue_runs(database: Database, redis_url: str, tenant_id: str, count: int, message: str) -> None:
    """Queue runs with one message, and ring for each, as the API does."""
    rows = await database.fetch(_QUEUE_RUNS, tenant_id=tenant_id, count=count, block={"type": "text", "text": message})
    bells = [Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows]
    await asyncio.to_thread(_ring, build_celery(redis_url, fail_fast=True), bells)


def _ring(celery: Celery, bells: list[Doorbell]) -> None:
    with celery.connection_for_write() as connection, producers[connection].acquire(block=True) as producer:
        for bell in bells:
            celery.send_task(
                TASK_RUN_AGENT,
                kwargs={"run_id": bell.run_id, "thread_id": bell.thread_id},
                queue=bell.queue,
                ignore_result=True,
                producer=producer,
            )
    celery.close()
