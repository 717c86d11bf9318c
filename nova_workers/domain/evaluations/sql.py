"""Evaluations and their trials: what is to be answered, the runs that answer, and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from nova_workers.base.errors import missing
from nova_workers.base.vocabulary import ENDED_RUNS, OPEN_ROLLOUTS, EvaluationStatus, TrialArm, sql_list
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.evaluators import Evaluator, evaluator_adapter
from nova_workers.contracts.http.datasets import RecordedCall, Redaction
from nova_workers.contracts.http.evaluations import (
    MAX_ANSWER_CHARS,
    EvaluationResult,
    EvaluationStart,
    EvaluationView,
    ToolReplay,
    TrialView,
)
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.datasets.sql import IN_VERSION
from nova_workers.domain.runs.sql.submit import ask_for_version
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.inserts import insert_runs, insert_threads
from nova_workers.ledger.stored import read_stored, to_store

_ESTIMATED: Final = 200
"""The number of the latest runs of an agent whose mean cost is the estimate of one more."""

_OPEN = "SELECT id FROM evaluations WHERE status = 'running' ORDER BY id LIMIT 1000"

# Without shadows: an agent has at most one, for as long as its rollout.
_COUNT_OPEN = """
SELECT count(*) FROM evaluations WHERE tenant_id = :tenant_id AND status = 'running' AND rollout_id IS NULL
"""

# The configurations of two versions; an agent that is being renamed has them under its new id.
_SPECS = """
SELECT v.version, v.spec
  FROM agents a
  JOIN agent_versions v ON v.tenant_id = a.tenant_id AND v.agent_id = a.id
 WHERE a.tenant_id = :tenant_id AND a.id = :agent_id AND a.deleted_at IS NULL AND v.version = ANY(:versions::int[])
"""

_HAS_AGENT = "SELECT EXISTS (SELECT FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL)"

# By the index of an agent's runs, newest first.
_MEAN_COST = """
SELECT avg(x.cost_usd)::float8
  FROM (SELECT u.cost_usd FROM runs r JOIN usage u ON u.run_id = r.id
         WHERE r.tenant_id = :tenant_id AND r.agent_id = :agent_id
         ORDER BY r.id DESC
         LIMIT :counted) x
"""

_COUNT_EXAMPLES = f"SELECT count(*)::int FROM dataset_examples e WHERE {IN_VERSION}"

_START = """
INSERT INTO evaluations (id, tenant_id, agent_id, version, against, dataset, dataset_version, split, tags, repeats,
                         evaluators, tools, budget_usd, threshold, estimate_usd, trials, rollout_id, created_by)
VALUES (:evaluation_id, :tenant_id, :agent_id, :version, :against::int, :dataset, :dataset_version, :split::text,
        :tags::text[], :repeats, :evaluators, :tools, :budget_usd::float8::numeric, :threshold::float8,
        :estimate_usd::float8::numeric, :trials, :rollout_id::text, :created_by)
"""

# In the order in which they are to run: each example in both versions, before the next repetition begins. An id is made
# of the place, so that the order is that of the index.
_ADD_TRIALS = f"""
INSERT INTO evaluation_trials (id, tenant_id, evaluation_id, example_id, key, arm, repeat)
SELECT :evaluation_id || '.' || lpad((row_number() OVER (ORDER BY p.repeat, e.id, a.place))::text, 6, '0'),
       :tenant_id, :evaluation_id, e.id, e.key, a.arm, p.repeat
  FROM dataset_examples e
 CROSS JOIN unnest(:arms::text[]) WITH ORDINALITY AS a (arm, place)
 CROSS JOIN generate_series(1, :repeats::int) AS p (repeat)
 WHERE {IN_VERSION}
"""

# The answers of the current version in a shadow are those of the conversations, and no cost of it.
_IS_SPENT = "(v.rollout_id IS NULL OR t.arm = 'candidate')"

_VIEW = f"""
v.id, v.agent_id AS agent, v.version, v.against, v.dataset, v.dataset_version, v.split, v.tags, v.repeats,
v.evaluators, v.tools, v.budget_usd::float8, v.threshold, v.estimate_usd::float8, v.status, v.why, v.trials,
v.result, v.rollout_id, v.created_by, v.created_at, v.finished_at,
(SELECT count(*)::int FROM evaluation_trials t WHERE t.evaluation_id = v.id AND t.outcome IS NOT NULL) AS done,
(SELECT sum(x.cost_usd)::float8
   FROM (SELECT t.cost_usd FROM evaluation_trials t WHERE t.evaluation_id = v.id AND {_IS_SPENT}
          UNION ALL
         SELECT j.cost_usd FROM evaluation_judgements j WHERE j.evaluation_id = v.id) x) AS spent_usd,
(SELECT sum(j.cost_usd)::float8 FROM evaluation_judgements j WHERE j.evaluation_id = v.id) AS judges_spent_usd
"""

_GET = f"SELECT {_VIEW} FROM evaluations v WHERE v.tenant_id = :tenant_id AND v.id = :evaluation_id"

_LIST = f"""
SELECT {_VIEW} FROM evaluations v
 WHERE v.tenant_id = :tenant_id AND (:before::text IS NULL OR v.id < :before)
   AND (:agent_id::text IS NULL OR v.agent_id = :agent_id) AND (:dataset::text IS NULL OR v.dataset = :dataset)
 ORDER BY v.id DESC
 LIMIT :limit
"""

_TRIALS = """
SELECT id, key, example_id, arm, repeat, state, run_id, outcome, answer, error, calls, verdicts, cost_usd::float8,
       seconds, steps
  FROM evaluation_trials
 WHERE tenant_id = :tenant_id AND evaluation_id = :evaluation_id AND id > :after
   AND (:key::text IS NULL OR key = :key)
 ORDER BY id
 LIMIT :limit
"""

_DELETE = """
DELETE FROM evaluations WHERE tenant_id = :tenant_id AND id = :evaluation_id AND status <> 'running' RETURNING id
"""

# One process at a time moves an evaluation forward.
_LOCK = f"""
SELECT id, tenant_id, agent_id, version, against, evaluators, budget_usd::float8, threshold, trials, created_by,
       EXISTS (SELECT FROM rollouts o WHERE o.id = rollout_id AND o.status IN {sql_list(OPEN_ROLLOUTS)}) AS is_fed
  FROM evaluations
 WHERE id = :evaluation_id AND status = 'running'
   FOR UPDATE SKIP LOCKED
"""

# What became of the runs of trials: also of those whose run is gone.
_ENDED = f"""
SELECT t.id, r.status AS outcome, r.result_text AS answer, r.output, r.error_message AS error, e.expected, e.rubric,
       e.input,
       COALESCE(n.steps, 0) AS steps, u.cost_usd::float8, (u.input_tokens + u.output_tokens)::bigint AS tokens,
       EXTRACT(EPOCH FROM r.finished_at - r.started_at)::float8 AS seconds,
       EXTRACT(EPOCH FROM now() - r.finished_at)::float8 AS ended_s_ago,
       (SELECT jsonb_agg(jsonb_build_object('tool', c.tool_name, 'arguments', c.params) ORDER BY c.step, c.sequence)
          FROM tool_calls c WHERE c.turn_id = n.id) AS calls
  FROM evaluation_trials t
  JOIN dataset_examples e ON e.id = t.example_id
  LEFT JOIN runs r ON r.id = t.run_id
  LEFT JOIN turns n ON n.run_id = r.id
  LEFT JOIN usage u ON u.run_id = r.id
 WHERE t.evaluation_id = :evaluation_id AND t.state = 'running' AND (r.id IS NULL OR r.status IN {sql_list(ENDED_RUNS)})
 ORDER BY t.id
 LIMIT :limit
"""

_JUDGED = """
UPDATE evaluation_trials t
   SET state = 'done', outcome = x.outcome, answer = x.answer, error = x.error, calls = x.calls, verdicts = x.verdicts,
       cost_usd = x.cost_usd, tokens = x.tokens, seconds = x.seconds, steps = x.steps
  FROM jsonb_to_recordset(:trials) AS x(id text, outcome text, answer text, error text, calls jsonb, verdicts jsonb,
                                        cost_usd numeric, tokens bigint, seconds float8, steps int)
 WHERE t.id = x.id AND t.evaluation_id = :evaluation_id AND t.state = 'running'
"""

# One process at a time judges what takes time, and no transaction stays open meanwhile. The end of its claim is the
# fence: who claims later has another one.
_CLAIM_JUDGING = """
UPDATE evaluations SET judging_until = now() + :lease::interval
 WHERE id = :evaluation_id AND status = 'running' AND (judging_until IS NULL OR judging_until < now())
RETURNING judging_until
"""

_KEEP_JUDGING = """
UPDATE evaluations SET judging_until = now() + :lease::interval
 WHERE id = :evaluation_id AND status = 'running' AND judging_until = :held_until
RETURNING judging_until
"""

_RELEASE_JUDGING = """
UPDATE evaluations SET judging_until = NULL WHERE id = :evaluation_id AND judging_until = :held_until
"""

_PROGRESS = f"""
SELECT count(*) FILTER (WHERE t.state = 'pending')::int AS pending,
       count(*) FILTER (WHERE t.state = 'running')::int AS running,
       COALESCE(sum(t.cost_usd) FILTER (WHERE {_IS_SPENT}), 0)::float8 AS spent_usd
  FROM evaluation_trials t JOIN evaluations v ON v.id = t.evaluation_id
 WHERE t.evaluation_id = :evaluation_id
"""

# Each turn in both versions: the candidate is to answer it, and the current version did.
_FEED = """
WITH fed AS (
    SELECT d.id AS dataset_id, v.trials
      FROM evaluations v JOIN datasets d ON d.tenant_id = v.tenant_id AND d.name = :dataset
     WHERE v.id = :evaluation_id AND v.tenant_id = :tenant_id
), added AS (
    INSERT INTO evaluation_trials (id, tenant_id, evaluation_id, example_id, key, arm, repeat, state, run_id)
    SELECT :evaluation_id || '.' || lpad((fed.trials + row_number() OVER (ORDER BY e.id, a.place))::text, 6, '0'),
           :tenant_id, :evaluation_id, e.id, e.key, a.arm, 1, a.state,
           CASE a.state WHEN 'running' THEN e.source_run_id END
      FROM fed
      JOIN dataset_examples e ON e.dataset_id = fed.dataset_id
     CROSS JOIN (VALUES ('candidate', 'pending', 1), ('baseline', 'running', 2)) AS a (arm, state, place)
     WHERE e.source_run_id = ANY(:run_ids::text[]) AND e.removed_version IS NULL
    RETURNING 1
)
UPDATE evaluations v SET trials = v.trials + (SELECT count(*)::int FROM added), dataset_version = :dataset_version
 WHERE v.id = :evaluation_id AND v.tenant_id = :tenant_id
RETURNING (SELECT count(*)::int FROM added) / 2 AS turns
"""

_NEXT = """
SELECT t.id, t.arm, e.input, e.context
  FROM evaluation_trials t JOIN dataset_examples e ON e.id = t.example_id
 WHERE t.evaluation_id = :evaluation_id AND t.state = 'pending'
 ORDER BY t.id
 LIMIT :limit
"""

_THREADS = insert_threads(
    "agent CROSS JOIN given", id="given.thread_id", agent_id="agent.id", origin="'evaluation'", ephemeral="true"
)
# Below all other runs of the tenant. A worker of a release that knows no replay refuses the option, and leaves the run
# to another: it would call the tools.
_RUNS = insert_runs(
    "agent CROSS JOIN given",
    id="given.run_id",
    tenant_id="agent.tenant_id",
    thread_id="given.thread_id",
    agent_id="agent.id",
    seq="1",
    content="given.content",
    queue="'background'",
    source="'evaluation'",
    options="""'{"trial": true}'""",
    priority="-100",
)
_BEGIN = f"""
WITH agent AS (
    SELECT id, tenant_id FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL
), given AS MATERIALIZED (
    SELECT x.* FROM jsonb_to_recordset(:trials) AS x(id text, run_id text, thread_id text, content jsonb)
), threads AS (
    {_THREADS}
), begun AS (
    UPDATE evaluation_trials t SET state = 'running', run_id = given.run_id
      FROM given, agent
     WHERE t.id = given.id AND t.evaluation_id = :evaluation_id AND t.state = 'pending'
)
{_RUNS}
"""

_RUNNING = """
SELECT run_id FROM evaluation_trials
 WHERE evaluation_id = :evaluation_id AND state = 'running' AND run_id IS NOT NULL
"""

_DROP_PENDING = "UPDATE evaluation_trials SET state = 'done' WHERE evaluation_id = :evaluation_id AND state = 'pending'"

_CLOSE = """
UPDATE evaluations SET status = :status, why = :why::text, finished_at = now(), result = :result
 WHERE id = :evaluation_id AND tenant_id = :tenant_id AND status = 'running'
RETURNING id
"""

_LOCK_OWN = """
SELECT id FROM evaluations WHERE tenant_id = :tenant_id AND id = :evaluation_id AND status = 'running' FOR UPDATE
"""

_SCORES = """
SELECT key, arm, outcome, verdicts, cost_usd::float8, seconds
  FROM evaluation_trials
 WHERE evaluation_id = :evaluation_id AND outcome IS NOT NULL
 ORDER BY id
"""

_REPLAY = """
SELECT v.tools, e.calls, d.redact
  FROM evaluation_trials t
  JOIN evaluations v ON v.id = t.evaluation_id
  JOIN dataset_examples e ON e.id = t.example_id
  JOIN datasets d ON d.id = e.dataset_id
 WHERE t.tenant_id = :tenant_id AND t.run_id = :run_id
"""


@dataclass(frozen=True, slots=True)
class OpenEvaluation:
    """An evaluation that this transaction has locked."""

    id: str
    tenant_id: str
    agent_id: str
    version: int
    against: int | None
    evaluators: Sequence[Evaluator]
    budget_usd: float | None
    threshold: float | None
    trials: int
    """How many it has in all."""
    is_fed: bool
    """Whether conversations of an open rollout add trials to it."""

    def version_of(self, arm: TrialArm) -> int:
        """Return the version that answers in an arm."""
        return self.against if arm == "baseline" and self.against is not None else self.version


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an evaluation is."""

    pending: int
    running: int
    spent_usd: float
    is_answering: bool = False
    """Whether runs of the versions are missing; else only judges are."""

    @property
    def is_open(self) -> bool:
        """Whether there is anything to wait for."""
        return bool(self.pending or self.running)


@dataclass(frozen=True, slots=True)
class PendingTrial:
    """A trial that has no run yet."""

    id: str
    arm: TrialArm
    input: Sequence[ContentBlock]
    context: Sequence[JsonObject]


@dataclass(frozen=True, slots=True)
class NewTrialRun:
    """The run that is to answer a trial."""

    trial: PendingTrial
    run_id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """What a trial's run needs to replay tool calls."""

    tools: ToolReplay
    calls: Sequence[RecordedCall]
    redact: Redaction


async def read_specs(
    connection: Connection, tenant_id: str, agent_id: str, versions: Sequence[int]
) -> dict[int, JsonObject]:
    """Return the configurations of those of the versions that an agent has had."""
    rows = await connection.fetch(_SPECS, tenant_id=tenant_id, agent_id=agent_id, versions=list(versions))
    return {row["version"]: row["spec"] for row in rows}


async def has_agent(connection: Connection, tenant_id: str, agent_id: str) -> bool:
    """Return whether there is such an agent."""
    return await connection.fetchval(_HAS_AGENT, tenant_id=tenant_id, agent_id=agent_id)


async def mean_cost_usd(connection: Connection, tenant_id: str, agent_id: str) -> float | None:
    """Return the mean cost of the latest runs of an agent; None if none has a known one."""
    return await connection.fetchval(_MEAN_COST, tenant_id=tenant_id, agent_id=agent_id, counted=_ESTIMATED)


async def count_open(connection: Connection, tenant_id: str) -> int:
    """Return how many evaluations of a tenant are running, without shadows of rollouts."""
    return await connection.fetchval(_COUNT_OPEN, tenant_id=tenant_id)


async def count_examples(
    connection: Connection, tenant_id: str, dataset_id: str, dataset_version: int, start: EvaluationStart
) -> int:
    """Return how many examples an evaluation would have."""
    return await connection.fetchval(_COUNT_EXAMPLES, **which_examples(tenant_id, dataset_id, dataset_version, start))


async def start_evaluation(
    transaction: Connection,
    tenant_id: str,
    evaluation_id: str,
    start: EvaluationStart,
    *,
    dataset_id: str,
    dataset_version: int,
    estimate_usd: float | None,
    trials: int,
    created_by: str,
    rollout_id: str | None = None,
) -> None:
    """Add an evaluation with all of its trials, in two statements. That of a shadow names its rollout."""
    which = which_examples(tenant_id, dataset_id, dataset_version, start)
    await transaction.execute(
        _START,
        evaluation_id=evaluation_id,
        tenant_id=tenant_id,
        agent_id=start.agent,
        version=start.version,
        against=start.against,
        dataset=start.dataset,
        dataset_version=dataset_version,
        split=start.split,
        tags=list(start.tags),
        repeats=start.repeats,
        evaluators=[evaluator_adapter.dump_python(one, mode="json", exclude_unset=True) for one in _named(start)],
        tools=to_store(ToolReplay, start.tools),
        budget_usd=start.budget_usd,
        threshold=start.threshold,
        estimate_usd=estimate_usd,
        trials=trials,
        rollout_id=rollout_id,
        created_by=created_by,
    )
    arms: list[TrialArm] = ["candidate"] if start.against is None else ["candidate", "baseline"]
    await transaction.execute(_ADD_TRIALS, **which, evaluation_id=evaluation_id, arms=arms, repeats=start.repeats)


async def feed_trials(
    transaction: Connection,
    tenant_id: str,
    evaluation: OpenEvaluation,
    *,
    dataset: str,
    dataset_version: int,
    run_ids: Sequence[str],
) -> int:
    """Add the turns of runs to a shadow that this transaction has locked, by their examples. Return how many."""
    return await transaction.fetchval(
        _FEED,
        tenant_id=tenant_id,
        evaluation_id=evaluation.id,
        dataset=dataset,
        dataset_version=dataset_version,
        run_ids=list(run_ids),
    )


async def find_evaluation(connection: Connection, tenant_id: str, evaluation_id: str) -> EvaluationView | None:
    """Return an evaluation."""
    row = await connection.fetchrow(_GET, tenant_id=tenant_id, evaluation_id=evaluation_id)
    return None if row is None else _view(row)


async def list_evaluations(
    connection: Connection,
    tenant_id: str,
    *,
    agent_id: str | None,
    dataset: str | None,
    before: str | None,
    limit: int,
) -> list[EvaluationView]:
    """Return evaluations, newest first."""
    rows = await connection.fetch(
        _LIST, tenant_id=tenant_id, agent_id=agent_id, dataset=dataset, before=before, limit=limit
    )
    return [_view(row) for row in rows]


async def list_trials(
    connection: Connection, tenant_id: str, evaluation_id: str, *, key: str | None, after: str | None, limit: int
) -> list[TrialView]:
    """Return the trials of an evaluation in the order in which they run."""
    rows = await connection.fetch(
        _TRIALS, tenant_id=tenant_id, evaluation_id=evaluation_id, key=key, after=after or "", limit=limit
    )
    return [TrialView.model_validate(dict(row)) for row in rows]


async def delete_evaluation(connection: Connection, tenant_id: str, evaluation_id: str) -> bool:
    """Delete an evaluation that has ended. Return whether it was there, and had ended."""
    return await connection.fetchval(_DELETE, tenant_id=tenant_id, evaluation_id=evaluation_id) is not None


async def open_evaluations(connection: Connection) -> list[str]:
    """Return the evaluations of all tenants that are running, oldest first."""
    return [row["id"] for row in await connection.fetch(_OPEN)]


async def lock_open(transaction: Connection, evaluation_id: str) -> OpenEvaluation | None:
    """Lock an evaluation that is running; None if it has ended, or another process moves it forward."""
    row = await transaction.fetchrow(_LOCK, evaluation_id=evaluation_id)
    if row is None:
        return None
    return OpenEvaluation(
        id=row["id"],
        tenant_id=row["tenant_id"],
        agent_id=row["agent_id"],
        version=row["version"],
        against=row["against"],
        evaluators=[read_stored(evaluator_adapter.validate_python, one) for one in row["evaluators"]],
        budget_usd=row["budget_usd"],
        threshold=row["threshold"],
        trials=row["trials"],
        is_fed=row["is_fed"],
    )


async def lock_own(transaction: Connection, tenant_id: str, evaluation_id: str) -> bool:
    """Lock an evaluation of a tenant. Return whether it is running."""
    return await transaction.fetchval(_LOCK_OWN, tenant_id=tenant_id, evaluation_id=evaluation_id) is not None


async def ended_trials(connection: Connection, evaluation_id: str, *, limit: int) -> list[Row]:
    """Return the outcomes of ended runs that are not yet judged, with the expected answers."""
    return await connection.fetch(_ENDED, evaluation_id=evaluation_id, limit=limit)


async def write_verdicts(connection: Connection, evaluation_id: str, trials: Sequence[JsonObject]) -> None:
    """Write what was judged, in one statement. Trials that were judged meanwhile keep their verdicts."""
    shortened = [{**trial, "answer": (trial["answer"] or "")[:MAX_ANSWER_CHARS] or None} for trial in trials]
    await connection.execute(_JUDGED, evaluation_id=evaluation_id, trials=shortened)


async def claim_judging(connection: Connection, evaluation_id: str, *, lease_s: float) -> datetime | None:
    """Claim to judge what takes time, for so long. Return when the claim ends; None if another process has one."""
    return await connection.fetchval(_CLAIM_JUDGING, evaluation_id=evaluation_id, lease=timedelta(seconds=lease_s))


async def keep_judging(
    connection: Connection, evaluation_id: str, *, held_until: datetime, lease_s: float
) -> datetime | None:
    """Hold a claim for so long from now.

    Args:
        connection: In whose transaction only its holder may write.
        evaluation_id: What is judged.
        held_until: When the claim ends, as it was returned last.
        lease_s: Seconds.

    Returns:
        When it ends now; None if another process has claimed it since, or the evaluation has ended.
    """
    lease = timedelta(seconds=lease_s)
    return await connection.fetchval(_KEEP_JUDGING, evaluation_id=evaluation_id, held_until=held_until, lease=lease)


async def release_judging(connection: Connection, evaluation_id: str, *, held_until: datetime) -> None:
    """Release a claim, unless another process has one by now."""
    await connection.execute(_RELEASE_JUDGING, evaluation_id=evaluation_id, held_until=held_until)


async def read_progress(connection: Connection, evaluation_id: str) -> Progress:
    """Return how far an evaluation is."""
    row = await connection.fetchrow(_PROGRESS, evaluation_id=evaluation_id)
    assert row is not None  # noqa: S101 - an aggregate has a row
    return Progress(row["pending"], row["running"], row["spent_usd"])


async def next_trials(connection: Connection, evaluation_id: str, *, limit: int) -> list[PendingTrial]:
    """Return the trials that are to run next."""
    rows = await connection.fetch(_NEXT, evaluation_id=evaluation_id, limit=limit)
    return [PendingTrial(row["id"], row["arm"], row["input"], row["context"]) for row in rows]


async def begin_trials(
    transaction: Connection, evaluation: OpenEvaluation, runs: Sequence[NewTrialRun]
) -> list[Doorbell]:
    """Queue the runs of trials, each on an ephemeral thread of its own. Empty if the agent is gone.

    Two statements, and one more with a baseline, however many there are.

    Raises:
        NotFound: A version is gone. Nothing may be committed.
    """
    rows: list[JsonObject] = [
        {"id": one.trial.id, "run_id": one.run_id, "thread_id": one.thread_id, "content": list(one.trial.input)}
        for one in runs
    ]
    tenant_id, agent_id = evaluation.tenant_id, evaluation.agent_id
    made = await transaction.fetch(
        _BEGIN, tenant_id=tenant_id, agent_id=agent_id, evaluation_id=evaluation.id, trials=rows
    )
    by_version: dict[int, list[str]] = {}
    for one in runs:
        by_version.setdefault(evaluation.version_of(one.trial.arm), []).append(one.run_id)
    for version, run_ids in by_version.items():
        if made and not await ask_for_version(transaction, tenant_id, run_ids, version):
            # It had them when the evaluation began: another version must not answer in its place.
            raise missing("agent_version", version, f"Agent {agent_id!r} has no such version any more.")
    return [Doorbell(row["id"], row["thread_id"], row["queue"]) for row in made]


async def running_runs(connection: Connection, evaluation_id: str) -> list[str]:
    """Return the runs of an evaluation that have not been judged."""
    return [row["run_id"] for row in await connection.fetch(_RUNNING, evaluation_id=evaluation_id)]


async def close_evaluation(
    transaction: Connection,
    tenant_id: str,
    evaluation_id: str,
    status: EvaluationStatus,
    *,
    why: str | None,
    result: EvaluationResult,
) -> None:
    """End an evaluation that this transaction has locked. Trials without a run are left out."""
    await transaction.execute(_DROP_PENDING, evaluation_id=evaluation_id)
    await transaction.execute(
        _CLOSE,
        tenant_id=tenant_id,
        evaluation_id=evaluation_id,
        status=status,
        why=why,
        result=result.model_dump(mode="json"),
    )


async def read_scores(connection: Connection, evaluation_id: str) -> list[Row]:
    """Return the verdicts, costs and times of all answers of an evaluation."""
    return await connection.fetch(_SCORES, evaluation_id=evaluation_id)


async def find_replay(connection: Connection, tenant_id: str, run_id: str) -> ReplaySource | None:
    """Return the calls and rules of a run; None if it is no run of an evaluation, or the example was deleted."""
    row = await connection.fetchrow(_REPLAY, tenant_id=tenant_id, run_id=run_id)
    if row is None:
        return None
    return ReplaySource(
        tools=read_stored(ToolReplay.model_validate, row["tools"]),
        calls=[read_stored(RecordedCall.model_validate, call) for call in row["calls"]],
        redact=read_stored(Redaction.model_validate, row["redact"]),
    )


def _named(start: EvaluationStart) -> Sequence[Evaluator]:
    """Return the evaluators with their kinds set, so that what is stored has them."""
    return [one.model_copy(update={"kind": one.kind}) for one in start.evaluators]


def which_examples(tenant_id: str, dataset_id: str, dataset_version: int, start: EvaluationStart) -> Mapping[str, Any]:
    """Return the examples of an evaluation, as `IN_VERSION` takes them."""
    return {
        "tenant_id": tenant_id,
        "dataset_id": dataset_id,
        "dataset_version": dataset_version,
        "split": start.split,
        "tags": list(start.tags),
    }


def _view(row: Row) -> EvaluationView:
    result = None if row["result"] is None else EvaluationResult.model_validate(row["result"])
    tools = read_stored(ToolReplay.model_validate, row["tools"])
    return EvaluationView.model_validate({**row, "result": result, "tools": tools})
