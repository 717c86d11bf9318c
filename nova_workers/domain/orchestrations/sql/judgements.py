"""What a tenant's judge, a model, says about models: one question at a time, and at most one in a given time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import TaskCategory
from nova_workers.contracts.http.orchestration_config import JudgementView
from nova_workers.contracts.usage import TokenUsage
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_usage

ModelScores = Mapping[str, Mapping[TaskCategory, float]]
"""Scores from 0 to 1, by model and kind of work."""

_IS_DUE = """
       NOT EXISTS (SELECT FROM model_judgements j
                    WHERE j.tenant_id = t.id AND j.asked_at > now() - make_interval(secs => :fresh_s))
   AND NOT EXISTS (SELECT FROM switches s
                    WHERE s.scope = 'fleet' OR (s.scope = 'tenant' AND s.tenant_id = t.id))
"""
"""Nothing was asked recently, and neither the fleet nor the tenant is paused (a tenant that ends is paused)."""

_UNASKED = f"""
SELECT t.id FROM tenants t
 WHERE EXISTS (SELECT FROM orchestration_configs c WHERE c.tenant_id = t.id)
   AND {_IS_DUE}
 ORDER BY t.id
"""

# Records that a question is asked now. Of two processes at once the later one waits for the row of the first and finds
# it fresh, so it returns no row. A process that dies after it has asked today: the next question is due in `fresh_s`.
_BEGIN = f"""
INSERT INTO model_judgements AS m (tenant_id, judge, status, asked_at)
SELECT t.id, :judge, 'asking', now() FROM tenants t WHERE t.id = :tenant_id AND {_IS_DUE}
    ON CONFLICT (tenant_id) DO UPDATE
       SET judge = EXCLUDED.judge, status = 'asking', asked_at = EXCLUDED.asked_at, ended_at = NULL, error = NULL
     WHERE m.asked_at <= now() - make_interval(secs => :fresh_s)
RETURNING asked_at
"""

_USED = insert_usage(
    "ended WHERE :model_calls::int > 0",
    id=":usage_id",
    tenant_id="tenant_id",
    model=":model",
    provider=":provider",
    input_tokens=":input_tokens",
    output_tokens=":output_tokens",
    cache_read_tokens=":cache_read_tokens",
    cache_write_tokens=":cache_write_tokens",
    reasoning_tokens=":reasoning_tokens",
    cost_usd=":cost_usd::float8::numeric",
    model_calls=":model_calls",
    duration_ms=":duration_ms",
)

# Ends the question that was asked at `asked_at`, and records what it cost: once, since the status guards it. Without an
# answer the scores of the last one stay.
_END = f"""
WITH ended AS (
    UPDATE model_judgements
       SET status = CASE WHEN :scores::jsonb IS NULL THEN 'failed' ELSE 'succeeded' END, ended_at = now(),
           error = :error, scores = COALESCE(:scores::jsonb, scores),
           judged_at = CASE WHEN :scores::jsonb IS NULL THEN judged_at ELSE now() END,
           judged_by = CASE WHEN :scores::jsonb IS NULL THEN judged_by ELSE judge END
     WHERE tenant_id = :tenant_id AND asked_at = :asked_at AND status = 'asking'
    RETURNING tenant_id
), used AS (
    {_USED}
)
SELECT tenant_id FROM ended
"""

_GET = """
SELECT judge, status, asked_at, ended_at, error, judged_at, judged_by FROM model_judgements WHERE tenant_id = :tenant_id
"""

_SCORES = """
SELECT scores FROM model_judgements
 WHERE tenant_id = :tenant_id AND judged_at > now() - make_interval(days => :days)
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question.

    Attributes:
        scores: None if there is no valid answer.
        error: Why there is none.
        model: As usage names it.
        model_calls: 0 if no model was called; then there is no usage.
    """

    scores: ModelScores | None = None
    error: str | None = None
    model: str | None = None
    provider: str | None = None
    tokens: TokenUsage = field(default_factory=TokenUsage)
    model_calls: int = 0
    duration_ms: int = 0


async def unasked_tenants(connection: Connection, *, fresh_s: float) -> list[str]:
    """Return the tenants with a configuration for which nothing was asked in the last `fresh_s` seconds."""
    return [row["id"] for row in await connection.fetch(_UNASKED, fresh_s=fresh_s)]


async def begin_judgement(connection: Connection, tenant_id: str, judge: str, *, fresh_s: float) -> datetime | None:
    """Record that a judge is asked now, and return when; None if another process asked within `fresh_s` seconds.

    Must be committed before the model is called.
    """
    return await connection.fetchval(_BEGIN, tenant_id=tenant_id, judge=judge, fresh_s=fresh_s)


async def end_judgement(connection: Connection, tenant_id: str, asked_at: datetime, answer: Answer) -> bool:
    """Record what came of a question, and its usage; return whether it was open."""
    tokens = answer.tokens
    found = await connection.fetchval(
        _END,
        tenant_id=tenant_id,
        asked_at=asked_at,
        scores=answer.scores,
        error=answer.error,
        usage_id=new_id("use"),
        model=answer.model,
        provider=answer.provider,
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        cache_read_tokens=tokens.cache_read_tokens,
        cache_write_tokens=tokens.cache_write_tokens,
        reasoning_tokens=tokens.reasoning_tokens,
        cost_usd=tokens.cost_usd,
        model_calls=answer.model_calls,
        duration_ms=answer.duration_ms,
    )
    return found is not None


async def get_judgement(connection: Connection, tenant_id: str) -> JudgementView | None:
    """Return the latest question to the judge; None if there was none."""
    row = await connection.fetchrow(_GET, tenant_id=tenant_id)
    return None if row is None else JudgementView(**row)


async def get_scores(connection: Connection, tenant_id: str, *, days: int) -> ModelScores:
    """Return the scores of the last valid answer, if it is not older than `days`."""
    return await connection.fetchval(_SCORES, tenant_id=tenant_id, days=days) or {}
