"""Commits a compaction: a turn whose summary replaces the turns before those that it keeps.

A compaction in the middle of a turn becomes that turn's parent, and also replaces the turn's first steps.
"""

from __future__ import annotations

from nova_workers.base.errors import RunLost
from nova_workers.base.ids import new_id
from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import CompactionRecord
from nova_workers.contracts.runs import Claim
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.runs.sql.filters import IS_RUNNING
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_messages, insert_turns, insert_usage

_TURN = insert_turns(
    "mine WHERE parent_turn_id IS DISTINCT FROM :turn_id",
    id=":turn_id",
    tenant_id="tenant_id",
    thread_id="thread_id",
    parent_turn_id="parent_turn_id",
    depth="depth",
    type="'compaction'",
    status="'succeeded'",
    agent_id="agent_id",
    agent_version="agent_version",
    model=":model",
    provider=":provider",
    input_tokens=":input_tokens",
    output_tokens=":output_tokens",
    cache_read_tokens=":cache_read_tokens",
    cache_write_tokens=":cache_write_tokens",
    reasoning_tokens=":reasoning_tokens",
    cost_usd=":cost_usd::float8::numeric",
    context_tokens=":tokens_after",
    stop_reason="'end_turn'",
    completed_at="now()",
)
_SUMMARY = insert_messages(
    "compaction",
    id=":message_id",
    tenant_id="tenant_id",
    thread_id="thread_id",
    turn_id="id",
    seq="0",
    kind="'summary'",
    role="'user'",
    content=":content",
)
_USED = insert_usage(
    "compaction",
    id=":usage_id",
    tenant_id="tenant_id",
    turn_id="id",
    thread_id="thread_id",
    agent_id="agent_id",
    model=":model",
    provider=":provider",
    input_tokens=":input_tokens",
    output_tokens=":output_tokens",
    cache_read_tokens=":cache_read_tokens",
    cache_write_tokens=":cache_write_tokens",
    reasoning_tokens=":reasoning_tokens",
    cost_usd=":cost_usd::float8::numeric",
    model_calls="1",
    duration_ms=":duration_ms",
)

# Inserts the compaction between the thread's head and the running turn, under the run's fence. Idempotent: repeated
# after a lost reply it changes nothing, since the running turn's parent is the compaction already.
_COMPACTION = f"""
WITH thread AS (
    SELECT id FROM threads WHERE id = :thread_id FOR UPDATE
), mine AS (
    SELECT r.id, r.tenant_id, r.thread_id, r.turn_id, r.agent_id, r.agent_version, t.parent_turn_id, t.depth
      FROM thread, runs r JOIN turns t ON t.id = r.turn_id
     WHERE r.id = :run_id AND r.fence = :fence AND {IS_RUNNING} AND r.thread_id = thread.id
       FOR UPDATE OF r
), compaction AS (
    {_TURN}
    RETURNING id, tenant_id, thread_id, agent_id, depth
), message AS (
    {_SUMMARY}
), record AS (
    INSERT INTO compactions (turn_id, tenant_id, summary, summarized_through_turn_id, first_kept_turn_id,
                             turns_summarized, model, provider, tokens_before, tokens_after, summary_tokens,
                             summarization_input_tokens, summarization_output_tokens, duration_ms, trigger,
                             through_step)
    SELECT id, tenant_id, :summary, :summarized_through_turn_id, :first_kept_turn_id, :turns_summarized, :model,
           :provider, :tokens_before, :tokens_after, :summary_tokens, :summarization_input_tokens, :output_tokens,
           :duration_ms, :trigger, :through_step
      FROM compaction
), used AS (
    {_USED}
), moved AS (
    UPDATE turns t SET parent_turn_id = c.id, depth = c.depth + 1
      FROM mine, compaction c WHERE t.id = mine.turn_id
), head AS (
    UPDATE threads h SET head_turn_id = c.id FROM compaction c WHERE h.id = c.thread_id
), head_move AS (
    INSERT INTO thread_heads (tenant_id, thread_id, turn_id, run_id, move)
    SELECT c.tenant_id, c.thread_id, c.id, :run_id, 'compaction' FROM compaction c
)
SELECT id FROM mine
"""


async def commit_compaction(
    connection: Connection, claim: Claim, turn_id: str, record: CompactionRecord, usage: TokenUsage
) -> None:
    """Insert a compaction turn between a thread's head and the running turn.

    Args:
        turn_id: Id of the compaction, made by the caller, so that the write can be repeated.
        usage: Usage of the summary.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    found = await connection.fetchval(
        _COMPACTION,
        run_id=claim.run_id,
        fence=claim.fence,
        thread_id=claim.thread_id,
        turn_id=turn_id,
        model=record.model,
        provider=record.provider,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_usd=usage.cost_usd,
        tokens_after=record.tokens_after,
        message_id=new_id("msg"),
        content=[text_block(record.summary)],
        summary=record.summary,
        summarized_through_turn_id=record.summarized_through_turn_id,
        first_kept_turn_id=record.first_kept_turn_id,
        turns_summarized=record.turns_summarized,
        tokens_before=record.tokens_before,
        summary_tokens=record.summary_tokens,
        summarization_input_tokens=record.summarization_input_tokens,
        duration_ms=record.duration_ms,
        trigger=record.trigger,
        through_step=record.through_step,
        usage_id=new_id("use"),
    )
    if found is None:
        raise RunLost(
            f"Run {claim.run_id!r} is no longer held under fence {claim.fence}; its compaction was not written.",
            run_id=claim.run_id,
        )
