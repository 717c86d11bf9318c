"""A compaction is a turn of its own: the summary takes the place of the turns before those that it keeps."""

from __future__ import annotations

from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import CompactionRecord
from nova_workers.contracts.runs import Claim
from nova_workers.contracts.usage import TokenUsage
from nova_workers.errors import RunLost
from nova_workers.ids import new_id
from nova_workers.ledger.database import Connection

__all__ = ["commit_compaction"]

# Between the thread's head and the turn that runs, under its fence. Sent again after a lost reply it changes nothing:
# the running turn's parent is the compaction already.
_COMPACTION = """
WITH thread AS (
    SELECT id FROM threads WHERE id = $3 FOR UPDATE
), mine AS (
    SELECT r.id, r.tenant_id, r.thread_id, r.turn_id, r.agent_id, r.agent_version, t.parent_turn_id, t.depth
      FROM thread, runs r JOIN turns t ON t.id = r.turn_id
     WHERE r.id = $1 AND r.fence = $2 AND r.status = 'running' AND r.thread_id = thread.id
       FOR UPDATE OF r
), compaction AS (
    INSERT INTO turns (id, tenant_id, thread_id, parent_turn_id, depth, type, status, agent_id, agent_version, model,
                       provider, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,
                       reasoning_tokens, cost_usd, context_tokens, stop_reason, completed_at)
    SELECT $4, tenant_id, thread_id, parent_turn_id, depth, 'compaction', 'succeeded', agent_id, agent_version, $5, $6,
           $7, $8, $9, $10, $11, $12::float8::numeric, $13, 'end_turn', now()
      FROM mine WHERE parent_turn_id <> $4
    RETURNING id, tenant_id, thread_id, agent_id, depth
), message AS (
    INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, kind, role, content)
    SELECT $14, tenant_id, thread_id, id, 0, 'summary', 'user', $15 FROM compaction
), record AS (
    INSERT INTO compactions (turn_id, tenant_id, summary, summarized_through_turn_id, first_kept_turn_id,
                             turns_summarized, model, provider, tokens_before, tokens_after, summary_tokens,
                             summarization_input_tokens, summarization_output_tokens, duration_ms, trigger)
    SELECT id, tenant_id, $16, $17, $18, $19, $5, $6, $20, $13, $21, $22, $8, $23, $24 FROM compaction
), used AS (
    INSERT INTO usage (id, tenant_id, turn_id, thread_id, agent_id, model, provider, input_tokens, output_tokens,
                       cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_usd, model_calls, duration_ms)
    SELECT $25, tenant_id, id, thread_id, agent_id, $5, $6, $7, $8, $9, $10, $11, $12::float8::numeric, 1, $23
      FROM compaction
), moved AS (
    UPDATE turns t SET parent_turn_id = c.id, depth = c.depth + 1
      FROM mine, compaction c WHERE t.id = mine.turn_id
), head AS (
    UPDATE threads h SET head_turn_id = c.id FROM compaction c WHERE h.id = c.thread_id
), head_move AS (
    INSERT INTO thread_heads (tenant_id, thread_id, turn_id, run_id, move)
    SELECT c.tenant_id, c.thread_id, c.id, $1, 'compaction' FROM compaction c
)
SELECT id FROM mine
"""


async def commit_compaction(
    connection: Connection, claim: Claim, turn_id: str, record: CompactionRecord, usage: TokenUsage
) -> None:
    """Put a compaction turn between a thread's head and the turn that runs.

    Args:
        turn_id: Of the compaction, made by the caller, so that the write can be repeated.
        usage: What the summary cost.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    found = await connection.fetchval(
        _COMPACTION,
        claim.run_id,
        claim.fence,
        claim.thread_id,
        turn_id,
        record.model,
        record.provider,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.cost_usd,
        record.tokens_after,
        new_id("msg"),
        [text_block(record.summary)],
        record.summary,
        record.summarized_through_turn_id,
        record.first_kept_turn_id,
        record.turns_summarized,
        record.tokens_before,
        record.summary_tokens,
        record.summarization_input_tokens,
        record.duration_ms,
        record.trigger,
        new_id("use"),
    )
    if found is None:
        raise RunLost(
            f"Run {claim.run_id!r} is no longer held under fence {claim.fence}; its compaction was not written.",
            run_id=claim.run_id,
        )
