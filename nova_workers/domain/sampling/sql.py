"""Samplings of agents, and the live runs that were chosen for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from nova_workers.base.vocabulary import ENDED_RUNS, sql_list
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.evaluators import Judge
from nova_workers.contracts.http.sampling import Drift, SamplingPut, ScorePeriod
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.stored import read_stored, to_store

HUNDREDTHS: Final = 100
"""The parts of a percent in which the ledger has shares."""
_DAYS: Final = 30
_LOOKED_AT: Final = 1_000
"""How many ended runs of an agent one sweep looks at."""
_SETTLED: Final = "interval '10 seconds'"
"""A transaction that ends a run has committed by then; an earlier run would be overlooked."""

_PUT = """
INSERT INTO samplings AS s (tenant_id, agent_id, share, judge, created_by)
SELECT tenant_id, id, :share, :judge, :created_by
  FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL
    ON CONFLICT (tenant_id, agent_id) DO UPDATE
   SET share = EXCLUDED.share, judge = EXCLUDED.judge, updated_at = now(),
       reference_from = CASE WHEN s.judge = EXCLUDED.judge THEN s.reference_from ELSE now() END,
       windows = CASE WHEN s.judge = EXCLUDED.judge THEN s.windows ELSE 0 END
 WHERE (s.share, s.judge) IS DISTINCT FROM (EXCLUDED.share, EXCLUDED.judge)
"""

_DELETE = "DELETE FROM samplings WHERE tenant_id = :tenant_id AND agent_id = :agent_id RETURNING agent_id"

_COLUMNS = """
s.tenant_id, s.agent_id, s.share, s.judge, s.created_by, s.created_at, s.updated_at, s.reference_from, s.windows,
s.drift
"""

_GET = f"SELECT {_COLUMNS} FROM samplings s WHERE s.tenant_id = :tenant_id AND s.agent_id = :agent_id"

_LIST = """
SELECT s.tenant_id, s.agent_id
  FROM samplings s JOIN agents a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id AND a.deleted_at IS NULL
 ORDER BY s.tenant_id, s.agent_id
"""

# One process at a time moves the samples of an agent forward.
_LOCK = f"{_GET} FOR UPDATE SKIP LOCKED"

# By a hash of the run's id, so that it is decided once, and alike by any process. Each run is looked at once: the
# index of an agent's ended runs has them in the order of their ends.
_CHOOSE = f"""
WITH seen AS MATERIALIZED (
    SELECT r.id, r.thread_id, r.agent_version, r.source, r.result_text, r.finished_at
      FROM samplings s
      JOIN runs r ON r.tenant_id = s.tenant_id AND r.agent_id = s.agent_id AND r.status = 'succeeded'
                 AND r.finished_at IS NOT NULL AND (r.finished_at, r.id) > (s.looked_until, s.looked_id)
                 AND r.finished_at < now() - {_SETTLED}
     WHERE s.tenant_id = :tenant_id AND s.agent_id = :agent_id
     ORDER BY r.finished_at, r.id
     LIMIT {_LOOKED_AT}
), chosen AS (
    INSERT INTO run_samples (run_id, tenant_id, agent_id, agent_version, thread_id)
    SELECT id, :tenant_id, :agent_id, agent_version, thread_id
      FROM seen
     WHERE source NOT IN ('evaluation', 'work_order') AND result_text <> ''
       AND abs(hashtextextended('sample:' || id, 0) % {100 * HUNDREDTHS}) < :share
        ON CONFLICT (run_id) DO NOTHING
)
UPDATE samplings s SET looked_until = x.finished_at, looked_id = x.id
  FROM (SELECT finished_at, id FROM seen ORDER BY finished_at DESC, id DESC LIMIT 1) x
 WHERE s.tenant_id = :tenant_id AND s.agent_id = :agent_id
"""

_ENDED = f"""
SELECT s.run_id, r.status, r.result_text AS answer, r.error_message AS error, u.cost_usd::float8
  FROM run_samples s
  LEFT JOIN runs r ON r.id = s.judge_run_id
  LEFT JOIN usage u ON u.run_id = s.judge_run_id
 WHERE s.tenant_id = :tenant_id AND s.agent_id = :agent_id AND s.state = 'running'
   AND (r.id IS NULL OR r.status IN {sql_list(ENDED_RUNS)})
 ORDER BY s.run_id
 LIMIT 200
"""

_WRITE = """
UPDATE run_samples s
   SET state = 'done', score = x.score, reason = x.reason, cost_usd = x.cost_usd, judged_at = now()
  FROM jsonb_to_recordset(:opinions) AS x(run_id text, score float8, reason text, cost_usd numeric)
 WHERE s.run_id = x.run_id AND s.tenant_id = :tenant_id AND s.state = 'running'
"""

_DAY = """
(date_trunc('day', now() AT TIME ZONE t.timezone) AT TIME ZONE t.timezone)
"""

_PROGRESS = f"""
SELECT count(*) FILTER (WHERE s.state = 'pending')::int AS pending,
       count(*) FILTER (WHERE s.state = 'running')::int AS running,
       COALESCE(sum(s.cost_usd) FILTER (WHERE s.judged_at >= {_DAY}), 0)::float8 AS spent_usd,
       count(*) FILTER (WHERE s.state = 'done' AND s.judge_run_id IS NOT NULL)::int AS ended,
       count(s.score)::int AS answered, (avg(s.cost_usd) FILTER (WHERE s.cost_usd > 0))::float8 AS mean_usd
  FROM tenants t
  JOIN run_samples s ON s.tenant_id = t.id AND s.agent_id = :agent_id
                    AND (s.state <> 'done' OR s.judged_at >= {_DAY} - interval '1 day')
 WHERE t.id = :tenant_id
"""

_NEXT = """
SELECT s.run_id, r.content AS question, r.result_text AS answer, n.parent_turn_id
  FROM run_samples s
  JOIN runs r ON r.id = s.run_id
  LEFT JOIN turns n ON n.run_id = r.id
 WHERE s.tenant_id = :tenant_id AND s.agent_id = :agent_id AND s.state = 'pending'
 ORDER BY s.run_id
 LIMIT :limit
"""

_BEGIN = """
UPDATE run_samples s SET state = 'running', judge_run_id = x.judge_run_id
  FROM jsonb_to_recordset(:begun) AS x(run_id text, judge_run_id text)
 WHERE s.run_id = x.run_id AND s.tenant_id = :tenant_id AND s.state = 'pending'
"""

_GIVE_UP = """
UPDATE run_samples SET state = 'done', reason = :reason, judged_at = now()
 WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND state = 'pending'
"""

# In the order in which they were judged, so that a window once full does not change.
_SCORED = """
FROM run_samples s
WHERE s.tenant_id = :tenant_id AND s.agent_id = :agent_id AND s.judged_at > :since AND s.score IS NOT NULL
"""
_COUNT_SCORED = f"SELECT count(*)::int {_SCORED}"
_SCORES = f"SELECT s.score, s.judged_at {_SCORED} ORDER BY s.judged_at, s.run_id OFFSET :skipped LIMIT :limit"

_RECORD_WINDOWS = """
UPDATE samplings SET windows = :windows WHERE tenant_id = :tenant_id AND agent_id = :agent_id
"""
_RECORD_SHIFT = """
UPDATE samplings SET reference_from = :reference_from, windows = 0, drift = COALESCE(:drift::jsonb, drift)
 WHERE tenant_id = :tenant_id AND agent_id = :agent_id
"""

_PERIODS = f"""
SELECT (s.judged_at AT TIME ZONE 'UTC')::date AS day, s.agent_version AS version,
       count(s.score)::int AS judged, (count(*) - count(s.score))::int AS not_judged, avg(s.score) AS mean_score
  FROM run_samples s
 WHERE s.tenant_id = :tenant_id AND s.agent_id = :agent_id AND s.state = 'done'
   AND s.judged_at >= now() - {_DAYS} * interval '1 day'
 GROUP BY day, version
 ORDER BY day, version
"""


@dataclass(frozen=True, slots=True)
class Sampling:
    """What is judged of an agent.

    Attributes:
        share: In hundredths of a percent.
        reference_from: The scores after this time are the present reference, and what is compared with it.
        windows: How many windows were compared with it.
    """

    tenant_id: str
    agent_id: str
    share: int
    judge: Judge
    created_by: str
    created_at: datetime
    updated_at: datetime
    reference_from: datetime
    windows: int
    drift: Drift | None


@dataclass(frozen=True, slots=True)
class SamplingProgress:
    """The samples of an agent that are open, and what today's cost.

    Attributes:
        ended: How many of the judge's calls have ended since yesterday, as `answered` and `mean_usd`.
        answered: How many of these gave a score.
        mean_usd: The mean cost of those that cost anything; None if none did.
    """

    pending: int
    running: int
    spent_usd: float
    ended: int
    answered: int
    mean_usd: float | None


@dataclass(frozen=True, slots=True)
class PendingSample:
    """A chosen run that has not been judged.

    Attributes:
        parent_turn_id: The turn before; None if it is the first.
    """

    run_id: str
    question: Sequence[ContentBlock]
    answer: str
    parent_turn_id: str | None


async def put_sampling(
    connection: Connection, tenant_id: str, agent_id: str, sampling: SamplingPut, *, created_by: str
) -> None:
    """Begin to sample an agent, or change how. Another judge begins a new reference."""
    await connection.execute(
        _PUT,
        tenant_id=tenant_id,
        agent_id=agent_id,
        share=round(sampling.percent * HUNDREDTHS),
        judge=to_store(Judge, sampling.judge),
        created_by=created_by,
    )


async def delete_sampling(connection: Connection, tenant_id: str, agent_id: str) -> bool:
    """Sample an agent no more; its scores stay. Return whether it was sampled."""
    return await connection.fetchval(_DELETE, tenant_id=tenant_id, agent_id=agent_id) is not None


async def find_sampling(connection: Connection, tenant_id: str, agent_id: str) -> Sampling | None:
    """Return the sampling of an agent; None if it has none."""
    return _sampling(await connection.fetchrow(_GET, tenant_id=tenant_id, agent_id=agent_id))


async def list_sampled(connection: Connection) -> list[tuple[str, str]]:
    """Return tenant and agent of each sampling, of all tenants."""
    return [(row["tenant_id"], row["agent_id"]) for row in await connection.fetch(_LIST)]


async def lock_sampling(transaction: Connection, tenant_id: str, agent_id: str) -> Sampling | None:
    """Lock the sampling of an agent; None if there is none, or another process has it."""
    return _sampling(await transaction.fetchrow(_LOCK, tenant_id=tenant_id, agent_id=agent_id))


async def choose_runs(transaction: Connection, sampling: Sampling) -> None:
    """Choose from the runs that ended since the last time, each looked at once."""
    await transaction.execute(_CHOOSE, tenant_id=sampling.tenant_id, agent_id=sampling.agent_id, share=sampling.share)


async def ended_samples(connection: Connection, sampling: Sampling) -> list[Row]:
    """Return the answers of the judge that were not read yet."""
    return await connection.fetch(_ENDED, tenant_id=sampling.tenant_id, agent_id=sampling.agent_id)


async def write_scores(connection: Connection, tenant_id: str, opinions: Sequence[JsonObject]) -> None:
    """Write what the judge answered, in one statement."""
    await connection.execute(_WRITE, tenant_id=tenant_id, opinions=list(opinions))


async def read_progress(connection: Connection, tenant_id: str, agent_id: str) -> SamplingProgress:
    """Return the open samples of an agent, and what those of today cost."""
    row = await connection.fetchrow(_PROGRESS, tenant_id=tenant_id, agent_id=agent_id)
    assert row is not None  # noqa: S101 - an aggregate has a row
    return SamplingProgress(**row)


async def next_samples(connection: Connection, sampling: Sampling, *, limit: int) -> list[PendingSample]:
    """Return the runs that are to be judged next."""
    rows = await connection.fetch(_NEXT, tenant_id=sampling.tenant_id, agent_id=sampling.agent_id, limit=limit)
    return [PendingSample(**row) for row in rows]


async def begin_samples(connection: Connection, tenant_id: str, runs: Mapping[str, str]) -> None:
    """Record the judge's run of each sample, by the judged run."""
    rows = [{"run_id": run_id, "judge_run_id": judge_run_id} for run_id, judge_run_id in runs.items()]
    await connection.execute(_BEGIN, tenant_id=tenant_id, begun=rows)


async def give_up(connection: Connection, sampling: Sampling, reason: str) -> None:
    """Leave the chosen runs that wait not judged."""
    await connection.execute(_GIVE_UP, tenant_id=sampling.tenant_id, agent_id=sampling.agent_id, reason=reason)


async def count_scores(connection: Connection, sampling: Sampling) -> int:
    """Return how many scores there are since the reference began."""
    return await connection.fetchval(_COUNT_SCORED, **_of_reference(sampling))


async def read_scores(
    connection: Connection, sampling: Sampling, *, skipped: int, limit: int
) -> list[tuple[float, datetime]]:
    """Return scores since the reference began, each with the time when it was given, oldest first."""
    rows = await connection.fetch(_SCORES, **_of_reference(sampling), skipped=skipped, limit=limit)
    return [(row["score"], row["judged_at"]) for row in rows]


async def record_windows(connection: Connection, sampling: Sampling, windows: int) -> None:
    """Record how many windows were compared, so that each is once."""
    await connection.execute(_RECORD_WINDOWS, tenant_id=sampling.tenant_id, agent_id=sampling.agent_id, windows=windows)


async def record_shift(
    connection: Connection, sampling: Sampling, *, reference_from: datetime, drift: Drift | None
) -> None:
    """Begin a new reference after a time, and keep the drift if there was one."""
    await connection.execute(
        _RECORD_SHIFT,
        tenant_id=sampling.tenant_id,
        agent_id=sampling.agent_id,
        reference_from=reference_from,
        drift=None if drift is None else drift.model_dump(mode="json"),
    )


async def read_periods(connection: Connection, tenant_id: str, agent_id: str) -> list[ScorePeriod]:
    """Return the scores of the last 30 days, by day and version."""
    rows = await connection.fetch(_PERIODS, tenant_id=tenant_id, agent_id=agent_id)
    return [ScorePeriod.model_validate(dict(row)) for row in rows]


def _of_reference(sampling: Sampling) -> dict[str, Any]:
    return {
        "tenant_id": sampling.tenant_id,
        "agent_id": sampling.agent_id,
        "since": sampling.reference_from,
    }


def _sampling(row: Row | None) -> Sampling | None:
    if row is None:
        return None
    drift = None if row["drift"] is None else Drift.model_validate(row["drift"])
    values: dict[str, Any] = {**row, "judge": read_stored(Judge.model_validate, row["judge"]), "drift": drift}
    return Sampling(**values)
