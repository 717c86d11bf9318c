"""Ends a run or requeues it: the last fenced statements of a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_workers.base.errors import RunLost
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import AttemptEnd, EffectCondition
from nova_workers.contracts.content import storable
from nova_workers.contracts.runs import Claim, Doorbell, Finish, Finished, PlannedEffect
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.effects.sql import WAITS_FOR_EARLIER
from nova_workers.domain.runs.sql.ends import HAS_LISTENER
from nova_workers.domain.runs.sql.filters import IS_RUNNING, QUEUE_ORDER
from nova_workers.domain.runs.sql.journal import (
    ADD_USAGE,
    CALLS,
    FACTS,
    FACTS_ROW,
    MESSAGES,
    UNCOUNTED,
    call_rows,
    facts_values,
    message_rows,
    usage_values,
)
from nova_workers.domain.runs.sql.requests import REQUESTS, RecordedCall, request_values
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_attempts, insert_effects, insert_usage

_NEXT = f"""
LEFT JOIN LATERAL (SELECT r.id AS next_id, r.queue AS next_queue
                     FROM runs r
                    WHERE r.thread_id = :thread_id AND r.status = 'queued'
                    ORDER BY {QUEUE_ORDER}
                    LIMIT 1) next ON true
"""

_USED = insert_usage(
    "turn t",
    id=":usage_id",
    tenant_id="t.tenant_id",
    run_id="t.run_id",
    turn_id="t.id",
    thread_id="t.thread_id",
    agent_id="t.agent_id",
    model="t.model",
    provider="t.provider",
    input_tokens="t.input_tokens",
    output_tokens="t.output_tokens",
    cache_read_tokens="t.cache_read_tokens",
    cache_write_tokens="t.cache_write_tokens",
    reasoning_tokens="t.reasoning_tokens",
    cost_usd="t.cost_usd",
    model_calls="t.model_calls",
    duration_ms=":duration_ms",
)

_APPLIES: Mapping[EffectCondition, str] = {
    # The runs of work orders have only references in their messages, and their orders have deliveries of their own.
    # Those of evaluations are not delivered.
    "has_listener": f"mine.source NOT IN ('work_order', 'evaluation') AND {HAS_LISTENER}",
    "searchable": "mine.status = 'succeeded' AND mine.source <> 'work_order' AND NOT thread.ephemeral",
    "untitled": "mine.status = 'succeeded' AND thread.title IS NULL AND thread.turn_count + 1 >= 2 "
    "AND NOT thread.ephemeral",
    "ended": "mine.source NOT IN ('work_order', 'evaluation')",
}
"""The conditions of effects, each decided in the statement that ends the run."""

_EFFECT_APPLIES = " ".join(f"WHEN '{condition}' THEN {sql}" for condition, sql in _APPLIES.items())

_EFFECTS = insert_effects(
    f"""mine, thread, unnest(:effect_ids::text[], :effect_kinds::text[], :effect_conditions::text[],
                                :effect_positions::int[]) AS x(id, kind, condition, position)
     WHERE CASE x.condition {_EFFECT_APPLIES} END""",
    id="x.id",
    tenant_id="mine.tenant_id",
    run_id="mine.id",
    thread_id="mine.thread_id",
    kind="x.kind",
    position="x.position",
    due_at=f"now() + CASE WHEN rank() OVER (ORDER BY x.position) > 1 THEN {WAITS_FOR_EARLIER} ELSE interval '0' END",
)

# One statement ends the run, its turn and the thread's hold, writes usage, moves the head pointer with its history, and
# inserts the effects, so a crash leaves all or nothing. The fence refuses a worker whose run was recovered. The
# thread's row is locked first, as in every transition. Messages, calls and usage of the last step are written as in the
# journal. A response that was cut before its first word has usage and no message: a call of the model, and no step.
_FINISH = f"""
WITH thread AS (
    SELECT id, title, turn_count, ephemeral FROM threads WHERE id = :thread_id FOR UPDATE
), mine AS (
    UPDATE runs r
       SET status = :status, stop_reason = :stop_reason, result_text = :result_text, error_kind = :error_kind,
           error_message = :error_message, error_retryable = :error_retryable, refused_by = :refused_by,
           final_event_id = :final_event_id,
           first_token_at = :first_token_at, limit_reached = :limit_reached, output = :output,
           lease_expires_at = NULL, finished_at = now()
      FROM thread
     WHERE r.id = :run_id AND r.fence = :fence AND {IS_RUNNING} AND r.thread_id = thread.id
    RETURNING r.id, r.tenant_id, r.thread_id, r.turn_id, r.agent_id, r.status, r.source, r.started_at,
              r.finished_at, r.cancel_requested_at, r.has_push_configs
), {MESSAGES}, {CALLS}, {REQUESTS}, {UNCOUNTED}, turn AS (
    UPDATE turns t
       SET status = :turn_status, stop_reason = :stop_reason, error_kind = :error_kind,
           error_message = :error_message, completed_at = now(),
           engine = :engine, model = COALESCE(:model, t.model), provider = :provider,
           steps = t.steps + :steps, tool_call_count = t.tool_call_count + jsonb_array_length(:calls),
           {ADD_USAGE},
           {FACTS}
      FROM mine, uncounted, {FACTS_ROW}
     WHERE t.id = mine.turn_id
    RETURNING t.id, t.tenant_id, t.run_id, t.thread_id, t.agent_id, t.model, t.provider, t.steps, t.input_tokens,
              t.output_tokens, t.cache_read_tokens, t.cache_write_tokens, t.reasoning_tokens, t.cost_usd,
              t.steps + :cut_responses AS model_calls, mine.started_at AS run_started_at, mine.finished_at,
              mine.cancel_requested_at
), used AS (
    {_USED}
), head AS (
    UPDATE threads h
       SET head_turn_id = mine.turn_id, active_run_id = NULL, turn_count = h.turn_count + 1,
           -- A failed turn keeps the last good session: its own may be broken.
           session_id = CASE WHEN mine.status = 'failed' THEN h.session_id ELSE COALESCE(:session_id, h.session_id) END,
           updated_at = now()
      FROM mine
     WHERE h.id = mine.thread_id
), moved AS (
    INSERT INTO thread_heads (tenant_id, thread_id, turn_id, run_id, move)
    SELECT tenant_id, thread_id, turn_id, id, 'turn' FROM mine
), effects_in AS (
    {_EFFECTS}
    RETURNING id
)
SELECT t.input_tokens, t.output_tokens, t.cache_read_tokens, t.cache_write_tokens, t.reasoning_tokens,
       t.cost_usd::float8 AS cost_usd, t.model_calls, t.run_started_at, t.finished_at, t.cancel_requested_at,
       (SELECT count(*)::int FROM effects_in) AS effects, next.*
  FROM turn t
  {_NEXT}
"""

# Whether this claim already ended its run, and only the reply was lost.
_FINISHED = f"""
SELECT t.input_tokens, t.output_tokens, t.cache_read_tokens, t.cache_write_tokens, t.reasoning_tokens,
       t.cost_usd::float8 AS cost_usd, t.steps + :cut_responses AS model_calls,
       ended.started_at AS run_started_at, ended.finished_at, ended.cancel_requested_at,
       (SELECT count(*)::int FROM effects e WHERE e.run_id = ended.id) AS effects, next.*
  FROM runs ended JOIN turns t ON t.id = ended.turn_id
  {_NEXT}
 WHERE ended.id = :run_id AND ended.fence = :fence AND ended.status = :status
"""


def _requeueing(ended: AttemptEnd, *, unless: str = "false") -> str:
    """Return the statement that requeues a run, in front, for another worker to continue after the last committed step.

    Fenced: a claim that lost its run changes nothing. So does one of a run ``r`` for which a condition holds.
    """
    return f"""
WITH thread AS (
    SELECT id FROM threads WHERE id = :thread_id FOR UPDATE
), mine AS (
    UPDATE runs r
       SET status = 'queued', lease_expires_at = NULL, worker_id = NULL, queued_at = now(), rang_at = now()
      FROM thread, runs o
     WHERE r.id = :run_id AND r.fence = :fence AND {IS_RUNNING} AND r.thread_id = thread.id AND o.id = r.id
       AND NOT ({unless})
    RETURNING r.id, r.tenant_id, r.thread_id, r.attempt, r.claimed_at, o.worker_id AS holder_id
), ended AS (
    {insert_attempts("mine", ended=ended)}
), freed AS (
    UPDATE threads SET active_run_id = NULL FROM mine WHERE threads.id = mine.thread_id
)
SELECT id FROM mine
"""


_REQUEUE = _requeueing("requeued")

# At most once in the life of a run, whichever worker has it: the attempt is the mark.
_REQUEUE_ONCE = _requeueing(
    "engine_error",
    unless="EXISTS (SELECT FROM run_attempts a WHERE a.run_id = r.id AND a.ended = 'engine_error')",
)

# Whether this claim already requeued its run: the reply was lost, and no worker has claimed the run since.
_REQUEUED = "SELECT id FROM runs WHERE id = :run_id AND fence = :fence AND status = 'queued'"

_TURN_STATUS = {"succeeded": "succeeded", "failed": "failed", "canceled": "aborted"}


def _positions(effects: Sequence[PlannedEffect]) -> list[int]:
    """Return the places of effects in the order of their run. The last ones share one: none waits for another."""
    chained = sum(not effect.is_last for effect in effects)
    return [chained + 1 if effect.is_last else place for place, effect in enumerate(effects, 1)]


async def finish_run(
    connection: Connection, claim: Claim, finish: Finish, *, seq: int, asked: RecordedCall | None = None
) -> Finished:
    """End a run and its turn, and free the thread.

    Args:
        seq: Place in the turn of the last step's first message.
        asked: What the last model call was asked with; None if that is recorded.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    step = finish.last_step
    is_cut = step is not None and not step.messages
    error = finish.error
    row = await connection.fetchrow(
        _FINISH,
        run_id=claim.run_id,
        fence=claim.fence,
        thread_id=claim.thread_id,
        status=finish.status,
        turn_status=_TURN_STATUS[finish.status],
        stop_reason=finish.stop_reason,
        result_text=storable(finish.text),
        error_kind=None if error is None else error.kind,
        error_message=None if error is None else storable(error.message),
        error_retryable=None if error is None else error.retryable,
        refused_by=None if error is None else error.budget,
        limit_reached=finish.limit,
        output=finish.output,
        first_token_at=finish.first_token_at,
        final_event_id=finish.final_event_id,
        messages=[] if step is None else message_rows(step.messages, step.index, seq, finish.final_event_id),
        calls=[] if step is None else call_rows(step),
        seq=seq,
        steps=int(step is not None and not is_cut),
        cut_responses=int(is_cut),
        **usage_values(finish.usage),
        **usage_values(TokenUsage() if step is None else step.tool_usage, of="tool_"),
        usage_id=new_id("use"),
        duration_ms=finish.duration_ms,
        engine=finish.engine,
        model=finish.model,
        provider=finish.provider,
        session_id=finish.session_id,
        effect_ids=[new_id("eff") for _ in finish.effects],
        effect_kinds=[effect.kind for effect in finish.effects],
        effect_conditions=[effect.applies for effect in finish.effects],
        effect_positions=_positions(finish.effects),
        facts=facts_values(finish.facts),
        **request_values(asked),
    )
    if row is None:
        row = await connection.fetchrow(
            _FINISHED,
            run_id=claim.run_id,
            thread_id=claim.thread_id,
            fence=claim.fence,
            status=finish.status,
            cut_responses=int(is_cut),
        )
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
        model_calls=row["model_calls"],
        started_at=row["run_started_at"],
        finished_at=row["finished_at"],
        cancel_requested_at=row["cancel_requested_at"],
    )


async def requeue_claimed(connection: Connection, *, run_id: str, thread_id: str, fence: int) -> bool:
    """Requeue a claimed run without counting a loss. Returns whether this claim still held it."""
    return await connection.fetchval(_REQUEUE, run_id=run_id, thread_id=thread_id, fence=fence) is not None


async def requeue_run(connection: Connection, claim: Claim) -> None:
    """Requeue a run without counting a loss.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    back = await requeue_claimed(connection, run_id=claim.run_id, thread_id=claim.thread_id, fence=claim.fence)
    if not back and not await _was_requeued(connection, claim):
        raise RunLost(f"Run {claim.run_id!r} is no longer held under fence {claim.fence}.", run_id=claim.run_id)


async def requeue_run_once(connection: Connection, claim: Claim) -> bool:
    """Requeue a run after an exception that no code expected.

    Returns:
        Whether it is queued again. False if such an exception had requeued it before, or another claim holds it: then
        its end is to be written, which is fenced.
    """
    ids = {"run_id": claim.run_id, "thread_id": claim.thread_id, "fence": claim.fence}
    back = await connection.fetchval(_REQUEUE_ONCE, **ids)
    return back is not None or await _was_requeued(connection, claim)


async def _was_requeued(connection: Connection, claim: Claim) -> bool:
    return await connection.fetchval(_REQUEUED, run_id=claim.run_id, fence=claim.fence) is not None
