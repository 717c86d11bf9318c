"""Judgements of an evaluation: one question to a judge about an answer, or about the answers of both versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova_workers.base.vocabulary import ENDED_RUNS, sql_list
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.evaluators import Judge
from nova_workers.contracts.http.datasets import Redaction
from nova_workers.contracts.http.evaluations import MAX_ANSWER_CHARS
from nova_workers.domain.datasets.sql import IN_VERSION
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.stored import read_stored

MAX_CALIBRATED = 200
"""A judge is compared with people on at most so many answers: more would show hardly more."""

_ESTIMATED = 200
"""The mean cost of so many of the latest answers of a judge is the estimate of one more."""

# With an id that is made of what is judged, each question is asked once.
_ADD = """
INSERT INTO evaluation_judgements (id, tenant_id, evaluation_id, trial_id, other_trial_id, evaluator, is_swapped)
SELECT x.trial_id || '.' || x.evaluator || CASE WHEN x.is_swapped THEN '.swapped' ELSE '' END,
       :tenant_id, :evaluation_id, x.trial_id, x.other_trial_id, x.evaluator, x.is_swapped
  FROM jsonb_to_recordset(:questions) AS x(trial_id text, other_trial_id text, evaluator int, is_swapped boolean)
    ON CONFLICT (id) DO NOTHING
"""

# The answers to examples that were taken from runs which people rated, as far as a judge can judge them.
_RATED = f"""
SELECT e.id, h.score
  FROM dataset_examples e
  JOIN runs r ON r.id = e.source_run_id AND r.tenant_id = e.tenant_id
 CROSS JOIN LATERAL (SELECT avg(f.score) AS score FROM feedback f
                      WHERE f.run_id = r.id AND f.tenant_id = e.tenant_id AND f.name = :feedback_name
                        AND f.step IS NULL AND f.source <> 'code') h
 WHERE {IN_VERSION} AND h.score IS NOT NULL AND (:has_rubric OR e.rubric IS NOT NULL)
   AND length(r.result_text) BETWEEN 1 AND {MAX_ANSWER_CHARS}
 ORDER BY e.id
 LIMIT {MAX_CALIBRATED}
"""
_COUNT_RATED = f"SELECT count(*)::int FROM ({_RATED}) x"
_ADD_RATED = f"""
INSERT INTO evaluation_judgements (id, tenant_id, evaluation_id, example_id, human_score, evaluator)
SELECT :evaluation_id || '.' || x.id || '.' || :evaluator::int, :tenant_id, :evaluation_id, x.id, x.score, :evaluator
  FROM ({_RATED}) x
"""

# Answers of this evaluation come first: by their ids, and because those that people rated wait until all are there.
_NEXT = """
SELECT j.id, j.is_swapped, CASE WHEN j.trial_id IS NULL THEN r.result_text ELSE t.answer END AS answer,
       o.answer AS other_answer, e.input, e.context, e.expected, e.rubric,
       CASE WHEN j.trial_id IS NULL THEN d.redact END AS redact
  FROM evaluation_judgements j
  LEFT JOIN evaluation_trials t ON t.id = j.trial_id
  JOIN dataset_examples e ON e.id = COALESCE(t.example_id, j.example_id)
  JOIN datasets d ON d.id = e.dataset_id
  LEFT JOIN runs r ON r.id = e.source_run_id AND j.trial_id IS NULL
  LEFT JOIN evaluation_trials o ON o.id = j.other_trial_id
 WHERE j.evaluation_id = :evaluation_id AND j.evaluator = :evaluator AND j.state = 'pending'
   AND (j.trial_id IS NOT NULL OR :with_rated)
 ORDER BY j.id
 LIMIT :limit
"""

_BEGIN = """
UPDATE evaluation_judgements j
   SET state = 'running', run_id = x.run_id, judge_version = :judge_version
  FROM jsonb_to_recordset(:begun) AS x(id text, run_id text)
 WHERE j.id = x.id AND j.evaluation_id = :evaluation_id AND j.state = 'pending'
"""

# What became of the runs of judges: also of those whose run is gone.
_ENDED = f"""
SELECT j.id, j.trial_id, j.evaluator, r.status, r.result_text AS answer, r.error_message AS error, u.cost_usd::float8
  FROM evaluation_judgements j
  LEFT JOIN runs r ON r.id = j.run_id
  LEFT JOIN usage u ON u.run_id = r.id
 WHERE j.evaluation_id = :evaluation_id AND j.state = 'running' AND (r.id IS NULL OR r.status IN {sql_list(ENDED_RUNS)})
 ORDER BY j.id
 LIMIT :limit
"""

_WRITE = """
UPDATE evaluation_judgements j
   SET state = 'done', score = x.score, reason = x.reason, cost_usd = x.cost_usd, finished_at = now()
  FROM jsonb_to_recordset(:opinions) AS x(id text, score float8, reason text, cost_usd numeric)
 WHERE j.id = x.id AND j.evaluation_id = :evaluation_id AND j.state <> 'done'
"""

_GIVE_UP = """
UPDATE evaluation_judgements SET state = 'done', reason = :reason
 WHERE evaluation_id = :evaluation_id AND evaluator = :evaluator AND state = 'pending'
RETURNING trial_id
"""

# The opinions on trials that one evaluator has in full: two of a pair.
_COMPLETE = """
SELECT j.trial_id, j.other_trial_id, j.is_swapped, j.score, j.reason
  FROM evaluation_judgements j
 WHERE j.evaluation_id = :evaluation_id AND j.evaluator = :evaluator AND j.trial_id = ANY(:trial_ids::text[])
   AND NOT EXISTS (SELECT FROM evaluation_judgements n
                    WHERE n.trial_id = j.trial_id AND n.evaluator = j.evaluator AND n.state <> 'done')
 ORDER BY j.trial_id, j.is_swapped
"""

_VERDICTS = """
UPDATE evaluation_trials t SET verdicts = jsonb_set(t.verdicts, ARRAY[(:evaluator::int)::text], x.verdict)
  FROM jsonb_to_recordset(:verdicts) AS x(trial_id text, verdict jsonb)
 WHERE t.id = x.trial_id AND t.evaluation_id = :evaluation_id
"""

_PROGRESS = """
SELECT evaluator, count(*) FILTER (WHERE state = 'pending')::int AS pending,
       count(*) FILTER (WHERE state = 'running')::int AS running,
       count(*) FILTER (WHERE state = 'done' AND run_id IS NOT NULL)::int AS ended, count(score)::int AS answered,
       COALESCE(sum(cost_usd), 0)::float8 AS spent_usd,
       (avg(cost_usd) FILTER (WHERE cost_usd > 0))::float8 AS mean_usd
  FROM evaluation_judgements
 WHERE evaluation_id = :evaluation_id
 GROUP BY evaluator
 ORDER BY evaluator
"""

# Both answers to an example, of those pairs of which one was just given.
_PAIRS = """
SELECT c.id AS candidate_id, b.id AS baseline_id, c.outcome AS candidate_outcome, b.outcome AS baseline_outcome,
       c.verdicts AS candidate_verdicts, b.verdicts AS baseline_verdicts
  FROM evaluation_trials c
  JOIN evaluation_trials b ON b.evaluation_id = c.evaluation_id AND b.example_id = c.example_id
                          AND b.repeat = c.repeat AND b.arm = 'baseline'
 WHERE c.evaluation_id = :evaluation_id AND c.arm = 'candidate' AND c.state = 'done' AND b.state = 'done'
   AND (c.id = ANY(:trial_ids::text[]) OR b.id = ANY(:trial_ids::text[]))
 ORDER BY c.id
"""

_CALIBRATION = """
SELECT evaluator, score, human_score
  FROM evaluation_judgements
 WHERE evaluation_id = :evaluation_id AND human_score IS NOT NULL AND state = 'done'
 ORDER BY id
"""

_RUNNING = """
SELECT run_id FROM evaluation_judgements
 WHERE evaluation_id = :evaluation_id AND state = 'running' AND run_id IS NOT NULL
"""

_DROP_PENDING = """
UPDATE evaluation_judgements SET state = 'done' WHERE evaluation_id = :evaluation_id AND state = 'pending'
"""

_MEAN_COST = """
SELECT avg(x.cost_usd)::float8
  FROM (SELECT cost_usd FROM evaluation_judgements
         WHERE tenant_id = :tenant_id AND judge_version = :judge_version AND finished_at IS NOT NULL AND cost_usd > 0
         ORDER BY finished_at DESC
         LIMIT :counted) x
"""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a judge.

    Attributes:
        trial_id: The answer; of a pair that of the candidate.
        evaluator: The place of the judge among the evaluators.
        other_trial_id: The baseline's answer; None if there is one answer only.
        is_swapped: Whether the baseline's answer comes first.
    """

    trial_id: str
    evaluator: int
    other_trial_id: str | None = None
    is_swapped: bool = False


@dataclass(frozen=True, slots=True)
class PendingQuestion:
    """A question that has not been asked, with what it is about.

    Attributes:
        answer: None if the run that people rated is gone.
        redact: The dataset's rules, of an answer that people rated: it is the run's, not the example's.
    """

    id: str
    is_swapped: bool
    answer: str | None
    other_answer: str | None
    input: Sequence[ContentBlock]
    context: Sequence[JsonObject]
    expected: Any
    rubric: str | None
    redact: Redaction | None = None


@dataclass(frozen=True, slots=True)
class JudgeProgress:
    """How far one judge is, and what its answers cost.

    Attributes:
        evaluator: Its place among the evaluators.
        ended: How many of its calls have ended.
        answered: How many of these gave a score.
        mean_usd: The mean cost of those that cost anything; None if none did.
    """

    evaluator: int
    pending: int
    running: int
    ended: int
    answered: int
    spent_usd: float
    mean_usd: float | None


async def add_questions(
    connection: Connection, tenant_id: str, evaluation_id: str, questions: Sequence[Question]
) -> None:
    """Add questions, each once, in one statement."""
    rows = [
        {
            "trial_id": one.trial_id,
            "other_trial_id": one.other_trial_id,
            "evaluator": one.evaluator,
            "is_swapped": one.is_swapped,
        }
        for one in questions
    ]
    await connection.execute(_ADD, tenant_id=tenant_id, evaluation_id=evaluation_id, questions=rows)


async def count_rated(connection: Connection, judge: Judge, which: Mapping[str, Any]) -> int:
    """Return how many answers that people rated a judge is compared with.

    Args:
        connection: Where.
        judge: Its feedback is that of `calibrate_by`.
        which: The examples of the evaluation, as `IN_VERSION` takes them.
    """
    return await connection.fetchval(_COUNT_RATED, **which, **_of_rated(judge)) if is_calibrated(judge) else 0


async def add_rated(
    connection: Connection, evaluation_id: str, evaluator: int, judge: Judge, which: Mapping[str, Any]
) -> None:
    """Add the questions about answers that people rated."""
    if is_calibrated(judge):
        given = {**which, **_of_rated(judge)}
        await connection.execute(_ADD_RATED, evaluation_id=evaluation_id, evaluator=evaluator, **given)


def is_calibrated(judge: Judge) -> bool:
    """Return whether a judge is compared with people."""
    return judge.calibrate_by is not None and not judge.pairwise


def _of_rated(judge: Judge) -> Mapping[str, Any]:
    return {"feedback_name": judge.calibrate_by, "has_rubric": judge.rubric is not None}


async def next_questions(
    connection: Connection, evaluation_id: str, evaluator: int, *, limit: int, with_rated: bool
) -> list[PendingQuestion]:
    """Return the questions that a judge is to be asked next, those about answers that people rated last."""
    rows = await connection.fetch(
        _NEXT, evaluation_id=evaluation_id, evaluator=evaluator, limit=limit, with_rated=with_rated
    )
    return [_question(row) for row in rows]


def _question(row: Row) -> PendingQuestion:
    redact = None if row["redact"] is None else read_stored(Redaction.model_validate, row["redact"])
    values: dict[str, Any] = {**row, "redact": redact}
    return PendingQuestion(**values)


async def read_calibration(connection: Connection, evaluation_id: str) -> list[Row]:
    """Return the scores of judges and of people on the answers that both know."""
    return await connection.fetch(_CALIBRATION, evaluation_id=evaluation_id)


async def begin_questions(
    connection: Connection, evaluation_id: str, judge_version: int, runs: Mapping[str, str]
) -> None:
    """Record the run of each question, by the question's id."""
    rows = [{"id": question_id, "run_id": run_id} for question_id, run_id in runs.items()]
    await connection.execute(_BEGIN, evaluation_id=evaluation_id, judge_version=judge_version, begun=rows)


async def ended_questions(connection: Connection, evaluation_id: str, *, limit: int) -> list[Row]:
    """Return the answers of judges that were not read yet."""
    return await connection.fetch(_ENDED, evaluation_id=evaluation_id, limit=limit)


async def write_opinions(connection: Connection, evaluation_id: str, opinions: Sequence[JsonObject]) -> None:
    """Write what judges answered, in one statement."""
    await connection.execute(_WRITE, evaluation_id=evaluation_id, opinions=list(opinions))


async def give_up(connection: Connection, evaluation_id: str, evaluator: int, reason: str) -> list[str]:
    """Ask a judge no more. Return the trials whose questions end so."""
    rows = await connection.fetch(_GIVE_UP, evaluation_id=evaluation_id, evaluator=evaluator, reason=reason)
    return [row["trial_id"] for row in rows if row["trial_id"] is not None]


async def complete_opinions(
    connection: Connection, evaluation_id: str, evaluator: int, trial_ids: Sequence[str]
) -> list[Row]:
    """Return the opinions on those of these trials that a judge was asked about in full, the swapped ones last."""
    return await connection.fetch(
        _COMPLETE, evaluation_id=evaluation_id, evaluator=evaluator, trial_ids=list(trial_ids)
    )


async def set_verdicts(
    connection: Connection, evaluation_id: str, evaluator: int, verdicts: Mapping[str, JsonObject]
) -> None:
    """Replace the verdicts of one evaluator, by trial, in one statement."""
    rows = [{"trial_id": trial_id, "verdict": verdict} for trial_id, verdict in verdicts.items()]
    await connection.execute(_VERDICTS, evaluation_id=evaluation_id, evaluator=evaluator, verdicts=rows)


async def read_progress(connection: Connection, evaluation_id: str) -> list[JudgeProgress]:
    """Return how far the judges of an evaluation are that have been asked something."""
    rows = await connection.fetch(_PROGRESS, evaluation_id=evaluation_id)
    return [JudgeProgress(**row) for row in rows]


async def find_pairs(connection: Connection, evaluation_id: str, trial_ids: Sequence[str]) -> list[Row]:
    """Return the pairs of answers to which these trials belong, if both are there."""
    return await connection.fetch(_PAIRS, evaluation_id=evaluation_id, trial_ids=list(trial_ids))


async def running_judges(connection: Connection, evaluation_id: str) -> list[str]:
    """Return the runs of judges of an evaluation that are not read yet."""
    return [row["run_id"] for row in await connection.fetch(_RUNNING, evaluation_id=evaluation_id)]


async def drop_questions(connection: Connection, evaluation_id: str) -> None:
    """Leave out the questions that have not been asked."""
    await connection.execute(_DROP_PENDING, evaluation_id=evaluation_id)


async def mean_cost_usd(connection: Connection, tenant_id: str, judge_version: int) -> float | None:
    """Return the mean cost of the latest answers of a judge; None if none has a known one."""
    return await connection.fetchval(_MEAN_COST, tenant_id=tenant_id, judge_version=judge_version, counted=_ESTIMATED)
