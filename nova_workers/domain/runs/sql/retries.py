"""Queues failed runs again, as further attempts of the same runs."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.base.errors import existing
from nova_workers.base.vocabulary import RetryRefusal
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.runs.sql.filters import RunFilter, conditions_of
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_attempts

# A failed run may be tried again while its turn is the head of its thread, so that nothing was built on it, and as
# long as its failure is no other run's answer. Queued runs of the thread wait behind it, as before.
_REFUSAL = """
CASE WHEN r.status <> 'failed' THEN 'not_failed'
     WHEN t.deleted_at IS NOT NULL THEN 'thread_deleted'
     WHEN r.parent_run_id IS NOT NULL OR t.orchestration_id IS NOT NULL OR r.source = 'work_order' THEN 'answered'
     WHEN t.head_turn_id IS DISTINCT FROM r.turn_id OR t.active_run_id IS NOT NULL
          OR (SELECT o.id FROM runs o
               WHERE o.thread_id = t.id AND o.status = 'queued' AND o.attempt > 0 LIMIT 1) IS NOT NULL
          THEN 'not_newest'
     WHEN EXISTS (SELECT FROM threads f
                   WHERE f.tenant_id = t.tenant_id AND f.forked_from_thread_id = t.id
                     AND f.forked_from_turn_id = r.turn_id AND f.deleted_at IS NULL) THEN 'forked'
     WHEN EXISTS (SELECT FROM effects e WHERE e.run_id = r.id AND e.status IN ('pending', 'running'))
          THEN 'effects_open' END
"""

_WHY = f"""
SELECT {_REFUSAL} AS refusal FROM runs r JOIN threads t ON t.id = r.thread_id
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
"""

# One statement takes the end of the turn back: the run is queued, first in its thread, its turn is open again, and the
# head of the thread is the turn before. Committed steps are kept; the beginning of a response that broke off is not,
# which is the step with the run's final event and without calls. Usage and effects come again with the next end.
_RETRY = f"""
WITH wanted AS MATERIALIZED (
    SELECT t.id AS thread_id, r.id AS run_id, r.turn_id, r.final_event_id, u.parent_turn_id
      FROM runs r JOIN threads t ON t.id = r.thread_id JOIN turns u ON u.id = r.turn_id
     WHERE r.tenant_id = :tenant_id AND r.id = ANY(:run_ids::text[]) AND r.status = 'failed'
       AND t.head_turn_id = r.turn_id AND {_REFUSAL} IS NULL
     ORDER BY t.id
       FOR UPDATE OF t
), back AS (
    UPDATE runs r
       SET status = 'queued', stop_reason = NULL, limit_reached = NULL, output = NULL, result_text = NULL,
           error_kind = NULL, error_message = NULL, error_retryable = NULL, final_event_id = NULL, finished_at = NULL,
           first_token_at = NULL, worker_id = NULL, losses = 0, trigger_told = false,
           hold = NULL, hold_detail = NULL, held_since = NULL, held_until = now(),
           cancel_requested_at = NULL, cancel_reason = NULL, queued_at = now(), rang_at = now()
      FROM wanted w, runs o
     WHERE r.id = w.run_id AND r.status = 'failed' AND o.id = r.id
    RETURNING r.id, r.tenant_id, r.thread_id, r.queue, r.attempt, r.claimed_at, o.worker_id AS holder_id, w.turn_id,
              w.parent_turn_id, w.final_event_id
), ended AS (
    {insert_attempts("back", ended="failed")}
), broken AS (
    DELETE FROM messages m
     USING back b
     WHERE m.turn_id = b.turn_id AND m.event_id = b.final_event_id AND m.kind = 'response'
       AND NOT EXISTS (SELECT FROM tool_calls c WHERE c.turn_id = m.turn_id AND c.step = m.step)
    RETURNING m.turn_id
), turn AS (
    UPDATE turns u
       SET status = 'running', stop_reason = NULL, error_kind = NULL, error_message = NULL, completed_at = NULL,
           steps = u.steps - CASE WHEN EXISTS (SELECT FROM broken x WHERE x.turn_id = u.id) THEN 1 ELSE 0 END
      FROM back b
     WHERE u.id = b.turn_id
), head AS (
    UPDATE threads t
       SET head_turn_id = b.parent_turn_id, turn_count = t.turn_count - 1, updated_at = now()
      FROM back b
     WHERE t.id = b.thread_id
), moved AS (
    INSERT INTO thread_heads (tenant_id, thread_id, turn_id, run_id, move)
    SELECT b.tenant_id, b.thread_id, b.parent_turn_id, b.id, 'retry' FROM back b WHERE b.parent_turn_id IS NOT NULL
), unused AS (
    DELETE FROM usage u USING back b WHERE u.run_id = b.id
), done AS (
    DELETE FROM effects e USING back b WHERE e.run_id = b.id
)
SELECT id AS run_id, thread_id, queue FROM back
"""


async def why_not_retried(connection: Connection, tenant_id: str, run_id: str) -> RetryRefusal | None:
    """Return why a run cannot be tried again; None if it can.

    Raises:
        NotFound: There is no such run.
    """
    row = existing(await connection.fetchrow(_WHY, tenant_id=tenant_id, run_id=run_id), "run", run_id)
    return row["refusal"]


async def retry_failed(connection: Connection, tenant_id: str, run_ids: Sequence[str]) -> list[Doorbell]:
    """Queue those of the runs again that may be, and return their doorbells."""
    rows = await connection.fetch(_RETRY, tenant_id=tenant_id, run_ids=list(run_ids))
    return [Doorbell(**row) for row in rows]


async def find_failed(
    connection: Connection, tenant_id: str, which: RunFilter, *, error_kind: str | None, after: str | None, limit: int
) -> list[tuple[str, RetryRefusal | None]]:
    """Return a tenant's failed runs that match, oldest first, each with why it cannot be tried again.

    Args:
        error_kind: Only those that failed of this kind.
        after: Only those after this run.
        limit: Most runs.
    """
    conditions = conditions_of(which)
    query = (
        f"SELECT r.id, {_REFUSAL} AS refusal FROM runs r JOIN threads t ON t.id = r.thread_id"
        f" WHERE {conditions.all} AND (:error_kind::text IS NULL OR r.error_kind = :error_kind)"
        " AND (:after::text IS NULL OR r.id > :after) ORDER BY r.id LIMIT :limit"
    )
    rows = await connection.fetch(
        query, tenant_id=tenant_id, **conditions.values, error_kind=error_kind, after=after, limit=limit
    )
    return [(row["id"], row["refusal"]) for row in rows]
