"""A run ends, or goes back to the line: the last fenced statements of a claim."""

from __future__ import annotations

from nova_workers.contracts.content import storable
from nova_workers.contracts.runs import Claim, Doorbell, Finish, Finished
from nova_workers.contracts.usage import TokenUsage
from nova_workers.errors import RunLost
from nova_workers.ids import new_id
from nova_workers.ledger.database import Connection
from nova_workers.ledger.journal import CALLS, MESSAGES, UNCOUNTED, call_rows, message_rows, usage_columns
from nova_workers.ledger.run_ends import LISTENED_TO

__all__ = ["finish_run", "requeue_run"]

_NEXT = """
LEFT JOIN LATERAL (SELECT r.id AS next_id, r.queue AS next_queue
                     FROM runs r
                    WHERE r.thread_id = t.thread_id AND r.status = 'queued'
                    ORDER BY (r.attempt > 0) DESC, r.front DESC, r.seq
                    LIMIT 1) next ON true
"""

# One statement ends run, turn, usage, head pointer, its history and the thread's hold, and leaves the effects' rows.
# The thread's row is locked first, as everywhere. $1 run, $2 fence, $3 messages, $4 calls (as in the journal), $18..
# and $31.. usage of the last step's response and of its tools; $37, $38 limit and output.
_FINISH = f"""
WITH thread AS (
    SELECT id, title, turn_count FROM threads WHERE id = $5 FOR UPDATE
), mine AS (
    UPDATE runs r
       SET status = $6, stop_reason = $7, result_text = $8, error_kind = $9, error_message = $10,
           error_retryable = $11, final_event_id = $12, first_token_at = $29, limit_reached = $37, output = $38,
           lease_expires_at = NULL, finished_at = now()
      FROM thread
     WHERE r.id = $1 AND r.fence = $2 AND r.status = 'running' AND r.thread_id = thread.id
    RETURNING r.id, r.tenant_id, r.thread_id, r.turn_id, r.agent_id, r.status
), {MESSAGES}, {CALLS}, {UNCOUNTED.format(seq="$30")}, turn AS (
    UPDATE turns t
       SET status = $13, stop_reason = $7, error_kind = $9, error_message = $10, completed_at = now(),
           engine = $14, model = COALESCE($15, t.model), provider = $16,
           steps = t.steps + $17, tool_call_count = t.tool_call_count + jsonb_array_length($4),
           input_tokens = t.input_tokens + uncounted.times * $18 + $31,
           output_tokens = t.output_tokens + uncounted.times * $19 + $32,
           cache_read_tokens = t.cache_read_tokens + uncounted.times * $20 + $33,
           cache_write_tokens = t.cache_write_tokens + uncounted.times * $21 + $34,
           reasoning_tokens = t.reasoning_tokens + uncounted.times * $22 + $35,
           context_tokens = COALESCE(NULLIF($18::int + $19::int + $20::int + $21::int, 0), t.context_tokens),
           cost_usd = $36::float8::numeric + CASE
                           WHEN uncounted.times = 0 THEN t.cost_usd
                           WHEN t.steps = 0 THEN $23::float8::numeric ELSE t.cost_usd + $23::float8::numeric END
      FROM mine, uncounted
     WHERE t.id = mine.turn_id
    RETURNING t.*
), used AS (
    INSERT INTO usage (id, tenant_id, run_id, turn_id, thread_id, agent_id, model, provider, input_tokens,
                       output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_usd, model_calls,
                       duration_ms)
    SELECT $24, t.tenant_id, t.run_id, t.id, t.thread_id, t.agent_id, t.model, t.provider, t.input_tokens,
           t.output_tokens, t.cache_read_tokens, t.cache_write_tokens, t.reasoning_tokens, t.cost_usd, t.steps, $25
      FROM turn t
), head AS (
    UPDATE threads h
       SET head_turn_id = mine.turn_id, active_run_id = NULL, turn_count = h.turn_count + 1,
           -- A turn that failed leaves the last good session: what it made of its own may be broken.
           session_id = CASE WHEN mine.status = 'failed' THEN h.session_id ELSE COALESCE($26, h.session_id) END,
           updated_at = now()
      FROM mine
     WHERE h.id = mine.thread_id
), moved AS (
    INSERT INTO thread_heads (tenant_id, thread_id, turn_id, run_id, move)
    SELECT tenant_id, thread_id, turn_id, id, 'turn' FROM mine
), effects_in AS (
    INSERT INTO effects (id, tenant_id, run_id, thread_id, kind, position)
    SELECT x.id, mine.tenant_id, mine.id, mine.thread_id, x.kind, x.position
      FROM mine, thread, unnest($27::text[], $28::text[]) WITH ORDINALITY AS x(id, kind, position)
     -- The world is told of every end, if somebody listens; the others are for what came to something.
     WHERE CASE x.kind
           WHEN 'delivery' THEN {LISTENED_TO}
           WHEN 'title' THEN mine.status = 'succeeded' AND thread.title IS NULL AND thread.turn_count + 1 >= 2
           ELSE mine.status = 'succeeded' END
    RETURNING id
)
SELECT t.input_tokens, t.output_tokens, t.cache_read_tokens, t.cache_write_tokens, t.reasoning_tokens,
       t.cost_usd::float8 AS cost_usd, t.steps, (SELECT count(*)::int FROM effects_in) AS effects, next.*
  FROM turn t
  {_NEXT}
"""

# Whether this claim has ended its run already: the reply to its finish was lost.
_FINISHED = f"""
SELECT t.input_tokens, t.output_tokens, t.cache_read_tokens, t.cache_write_tokens, t.reasoning_tokens,
       t.cost_usd::float8 AS cost_usd, t.steps,
       (SELECT count(*)::int FROM effects e WHERE e.run_id = ended.id) AS effects, next.*
  FROM runs ended JOIN turns t ON t.id = ended.turn_id
  {_NEXT}
 WHERE ended.id = $1 AND ended.fence = $2 AND ended.status = $3
"""

# Back to the front of the line, for another worker to go on from the last committed step.
_REQUEUE = """
WITH thread AS (
    SELECT id FROM threads WHERE id = $3 FOR UPDATE
), mine AS (
    UPDATE runs r
       SET status = 'queued', lease_expires_at = NULL, worker_id = NULL, queued_at = now(), rang_at = now()
      FROM thread
     WHERE r.id = $1 AND r.fence = $2 AND r.status = 'running' AND r.thread_id = thread.id
    RETURNING r.id, r.thread_id
), freed AS (
    UPDATE threads SET active_run_id = NULL FROM mine WHERE threads.id = mine.thread_id
)
SELECT id FROM mine
"""

# Whether this claim has given its run back already: the reply was lost, and nobody has claimed it since.
_REQUEUED = "SELECT id FROM runs WHERE id = $1 AND fence = $2 AND status = 'queued'"

_TURN_STATUS = {"succeeded": "succeeded", "failed": "failed", "canceled": "aborted"}


async def finish_run(connection: Connection, claim: Claim, finish: Finish, *, seq: int) -> Finished:
    """End a run and its turn, and free the thread.

    Args:
        seq: Place in the turn of the last step's first message.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    step = finish.last_step
    error = finish.error
    row = await connection.fetchrow(
        _FINISH,
        claim.run_id,
        claim.fence,
        [] if step is None else message_rows(step.messages, step.index, seq, finish.final_event_id),
        [] if step is None else call_rows(step),
        claim.thread_id,
        finish.status,
        finish.stop_reason,
        storable(finish.text),
        None if error is None else error.kind,
        None if error is None else storable(error.message),
        None if error is None else error.retryable,
        finish.final_event_id,
        _TURN_STATUS[finish.status],
        finish.engine,
        finish.model,
        finish.provider,
        0 if step is None else 1,
        *usage_columns(finish.usage),
        new_id("use"),
        finish.duration_ms,
        finish.session_id,
        [new_id("eff") for _ in finish.effects],
        list(finish.effects),
        finish.first_token_at,
        seq,
        *usage_columns(TokenUsage() if step is None else step.tool_usage),
        finish.limit,
        finish.output,
    )
    if row is None:
        row = await connection.fetchrow(_FINISHED, claim.run_id, claim.fence, finish.status)
    if row is None:
        raise RunLost(
            f"Run {claim.run_id!r} is no longer held under fence {claim.fence}; its end was not written.",
            run_id=claim.run_id,
        )
    return Finished(
        usage=TokenUsage(
            input_tokens=row["input_tokens"],
            output_tokens=row["output_tokens"],
            cache_read_tokens=row["cache_read_tokens"],
            cache_write_tokens=row["cache_write_tokens"],
            reasoning_tokens=row["reasoning_tokens"],
            cost_usd=row["cost_usd"],
        ),
        effects=row["effects"],
        next_run=None if row["next_id"] is None else Doorbell(row["next_id"], claim.thread_id, row["next_queue"]),
        model_calls=row["steps"],
    )


async def requeue_run(connection: Connection, claim: Claim) -> None:
    """Give a run back to the line, without counting a loss.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    back = await connection.fetchval(_REQUEUE, claim.run_id, claim.fence, claim.thread_id)
    if back is None and await connection.fetchval(_REQUEUED, claim.run_id, claim.fence) is None:
        raise RunLost(f"Run {claim.run_id!r} is no longer held under fence {claim.fence}.", run_id=claim.run_id)
