"""Evaluations on the real run protocol: trials are runs, tools are replayed, and what was found is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import InvalidInput, LimitExceeded, NotFound
from nova_workers.base.vocabulary import FeedbackSource
from nova_workers.contracts.evaluators import Contains, Exact, Function, Similarity, Trajectory
from nova_workers.contracts.http.datasets import DatasetCreate, ExamplesAdd, ExamplesFromRuns
from nova_workers.contracts.http.evaluations import EvaluationStart, EvaluationView, ToolReplay, TrialView
from nova_workers.contracts.http.feedback import FeedbackGive
from nova_workers.contracts.http.rollouts import RolloutShadow, RolloutStart, RolloutStep
from nova_workers.contracts.ports import Embedder
from nova_workers.contracts.runs import Accepted, WorkerPool
from nova_workers.domain.agents.rules.authors import AuthorRights
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.agents.rules.service import Agents
from nova_workers.domain.capabilities.rules import default_registry
from nova_workers.domain.capabilities.rules.user_evaluators import UserEvaluators
from nova_workers.domain.datasets.rules.service import add_examples, create_dataset, take_examples
from nova_workers.domain.effects.rules.provider import Vector
from nova_workers.domain.evaluations.rules import service, tick
from nova_workers.domain.evaluations.rules.evaluators import AWAITED
from nova_workers.domain.evaluations.rules.tick import EvaluationTicker
from nova_workers.domain.evaluations.rules.verdicts import Judges
from nova_workers.domain.evaluations.sql import find_evaluation, list_trials
from nova_workers.domain.feedback.rules import give_feedback
from nova_workers.domain.feedback.sql import Giver
from nova_workers.domain.rollouts.rules.service import RolloutSweep, start_rollout
from nova_workers.domain.runs.sql.installs import announce
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.tool_programs import McpToolPrograms
from tests.requirements import proves
from tests.support.data.seeded_embeddings import SeededEmbeddings
from tests.support.harness.workers import Harness, Worker

_AGENT = "clerk"
_LOOKUP = {"tool": {"name": "lookup", "input": {"order": 1}, "result": "LIVE"}}
_GOOD = [_LOOKUP, {"say": "It was sent.", "usage": {"input_tokens": 5, "output_tokens": 5, "cost_usd": 0.001}}]
_BAD = [{"say": "I do not know.", "usage": {"cost_usd": 0.001}}]
_EXAMPLE: dict[str, Any] = {
    "key": "one",
    "input": "Where is order 1?",
    "context": [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}],
    "calls": [{"tool": "lookup", "arguments": {"order": 1}, "result": "recorded"}],
    "expected": "It was sent.",
}
_VERSION = "INSERT INTO agent_versions (tenant_id, agent_id, version, spec) VALUES (:tenant_id, :agent_id, 2, :spec)"
_OTHERS = """
SELECT (SELECT count(*) FROM deliveries) + (SELECT count(*) FROM effects) + (SELECT count(*) FROM message_texts)
"""


_JUDGES = '''
import time
from nova_workers.sdk import evaluator, JudgedAnswer, Judgement

@evaluator
def looked(answer: JudgedAnswer) -> Judgement:
    """Judge whether it looked the order up."""
    used = [(call.tool, call.arguments) for call in answer.calls]
    is_good = used == [("lookup", {"order": 1})] and answer.answer == answer.expected
    return Judgement(score=float(is_good), reason=f"It asked {answer.input!r}.")

@evaluator
async def grade(answer: JudgedAnswer) -> float:
    """Grade."""
    return 0.5

@evaluator
def fail(answer: JudgedAnswer) -> bool:
    """Fail."""
    raise ValueError("no grammar")

@evaluator
def wrong(answer: JudgedAnswer) -> str:
    """Answer in another form."""
    return "good"

@evaluator(timeout_s=0.2)
def sleep(answer: JudgedAnswer) -> bool:
    """Take too long."""
    time.sleep(1)
    return True
'''


class _LosesItsClaim(SeededEmbeddings):
    """Stands still for so long that another process claims what it judges."""

    def __init__(self, harness: Harness) -> None:
        super().__init__()
        self._harness = harness

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        await self._harness.database.execute("UPDATE evaluations SET judging_until = now() + interval '1 minute'")
        return await super().embed(texts)


def _spec(script: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": "Clerk", "engine": "scripted", "engine_config": {"script": script}}


@pytest.fixture
async def fleet(harness: Harness) -> Harness:
    """A fleet with an agent whose first version answers well, and a dataset."""
    await harness.add_agent(_AGENT, _spec(_GOOD))
    await harness.database.execute(_VERSION, tenant_id=harness.tenant_id, agent_id=_AGENT, spec=_spec(_BAD))
    async with harness.database.transaction() as transaction:
        await create_dataset(transaction, harness.tenant_id, DatasetCreate(name="orders"))
    await _add(harness, _EXAMPLE, {"key": "two", "input": "And order 2?", "expected": "It was sent."})
    return harness


async def _add(harness: Harness, *examples: dict[str, Any]) -> None:
    given = ExamplesAdd.model_validate({"examples": examples})
    async with harness.database.transaction() as transaction:
        await add_examples(transaction, harness.tenant_id, "orders", given)


async def _start(harness: Harness, **fields: Any) -> str:
    start = EvaluationStart.model_validate({"agent": _AGENT, "dataset": "orders", "version": 1, **fields})
    evaluation_id = None if start.dry_run else service.new_evaluation_id()
    async with harness.database.transaction() as transaction:
        await service.plan_evaluation(
            transaction,
            harness.tenant_id,
            start,
            default_engine="scripted",
            created_by="key_1",
            evaluation_id=evaluation_id,
        )
    return evaluation_id or ""


async def _find(harness: Harness, evaluation_id: str) -> EvaluationView:
    async with harness.database.connection() as connection:
        found = await find_evaluation(connection, harness.tenant_id, evaluation_id)
    assert found is not None
    return found


async def _trials(harness: Harness, evaluation_id: str) -> list[TrialView]:
    async with harness.database.connection() as connection:
        return await list_trials(connection, harness.tenant_id, evaluation_id, key=None, after=None, limit=500)


async def _played(
    harness: Harness, worker: Worker, evaluation_id: str, embedder: Embedder | None = None
) -> EvaluationView:
    """Tick, and answer all doorbells, until the evaluation has ended."""
    ticker = EvaluationTicker(harness.work, SystemClock(), Judges(embedder))
    for _ in range(20):
        await ticker.tick()
        await harness.settle(worker)
        found = await _find(harness, evaluation_id)
        if found.status != "running":
            return found
    raise AssertionError("it does not end")


@proves("evaluations.replay")
async def test_two_versions_are_compared_over_replayed_tools(fleet: Harness) -> None:
    evaluators = (Exact(), Contains(texts=("sent",)), Trajectory(not_called=("refund",)))
    evaluation_id = await _start(fleet, version=2, against=1, evaluators=evaluators, repeats=2, threshold=0.9)
    done = await _played(fleet, fleet.worker(), evaluation_id)
    assert (done.status, done.trials, done.done) == ("done", 8, 8)
    assert done.result is not None
    assert done.result.baseline is not None
    assert (done.result.baseline.passed, done.result.baseline.failed) == (12, 0)
    assert (done.result.candidate.passed, done.result.candidate.failed) == (4, 8)
    assert [one.key for one in done.result.regressions] == ["one", "two"]
    exact = done.result.evaluators[0]
    assert exact.difference is not None
    assert (exact.evaluator["kind"], exact.mean_score, exact.difference.mean) == ("exact", 0, -1)
    assert done.result.meets_threshold is False
    trials = await _trials(fleet, evaluation_id)
    assert [trial.arm for trial in trials[:2]] == ["candidate", "baseline"]
    for trial in trials:
        assert trial.run_id is not None
        run = await fleet.run(trial.run_id)
        expected = 2 if trial.arm == "candidate" else 1
        assert (run["agent_version"], run["source"], run["queue"]) == (expected, "evaluation", "background")
        results = [
            block["content"][0]["text"]
            for message in await fleet.transcript(trial.run_id)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        if trial.arm == "candidate":
            assert results == []
        elif trial.key == "one":
            assert results == ["recorded"]
        else:
            assert "no call of 'lookup' with these arguments was recorded" in results[0]
    assert await fleet.database.fetchval(_OTHERS) == 0


async def test_a_trial_continues_the_example_s_conversation_on_a_thread_of_its_own(fleet: Harness) -> None:
    evaluation_id = await _start(fleet)
    await _played(fleet, fleet.worker(), evaluation_id)
    trial = (await _trials(fleet, evaluation_id))[0]
    assert trial.run_id is not None
    run = await fleet.run(trial.run_id)
    thread = await fleet.database.fetchrow(
        "SELECT ephemeral, origin, turn_count, title FROM threads WHERE id = :thread_id", thread_id=run["thread_id"]
    )
    assert dict(thread or {}) == {"ephemeral": True, "origin": "evaluation", "turn_count": 2, "title": None}
    assert (trial.answer, trial.calls) == ("It was sent.", [{"tool": "lookup", "arguments": {"order": 1}}])


@pytest.mark.parametrize(
    ("tools", "result"),
    [
        (ToolReplay(stand_ins={"lookup": "stand-in"}), "stand-in"),
        (ToolReplay(live=("lookup",)), "LIVE"),
    ],
)
async def test_a_call_that_was_not_recorded_has_a_stand_in_or_is_live(
    fleet: Harness, tools: ToolReplay, result: str
) -> None:
    await _add(fleet, {"key": "three", "input": "?", "split": "new"})
    evaluation_id = await _start(fleet, tools=tools, split="new")
    await _played(fleet, fleet.worker(), evaluation_id)
    (trial,) = await _trials(fleet, evaluation_id)
    assert trial.run_id is not None
    assert result in str([row["content"] for row in await fleet.transcript(trial.run_id)])
    assert trial.verdicts[0].status == "not_judged"


@proves("evaluations.resume")
async def test_a_crash_loses_no_trial_and_repeats_none(fleet: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick, "WINDOW", 1)
    evaluation_id = await _start(fleet, repeats=2)
    ticker = EvaluationTicker(fleet.work, SystemClock(), Judges(None))
    await ticker.tick()
    assert len(fleet.bells.take()) == 1
    # Its doorbell and its worker are lost; neither is anything else.
    assert await ticker.tick() == 0
    await fleet.age_doorbells()
    await fleet.reconciler.reconcile()
    done = await _played(fleet, fleet.worker(), evaluation_id)
    assert (done.status, done.done) == ("done", 4)
    runs = await fleet.database.fetchval("SELECT count(*) FROM runs WHERE source = 'evaluation'")
    assert runs == 4


async def test_an_evaluation_stops_when_its_budget_is_spent(fleet: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick, "WINDOW", 1)
    evaluation_id = await _start(fleet, budget_usd=0.0015, repeats=5)
    done = await _played(fleet, fleet.worker(), evaluation_id)
    assert done.status == "stopped"
    assert "budget" in (done.why or "")
    assert done.result is not None
    assert done.result.candidate.trials == 2
    # Those that were not asked any more are no answers.
    assert done.done == 2
    # What these runs cost is the estimate of the next ones.
    with pytest.raises(LimitExceeded, match="estimated"):
        await _start(fleet, budget_usd=0.0015, repeats=5)


def _judge(answer: str, **fields: Any) -> dict[str, Any]:
    script = [{"say": answer, "usage": {"cost_usd": 0.001}}]
    scripted = {"engine": "scripted", "engine_config": {"script": script}}
    return {"kind": "judge", "rubric": "Is it certain?", "budget_usd": 1, **scripted, **fields}


async def test_models_judge_in_runs_of_their_own_which_nothing_delivers(fleet: Harness) -> None:
    judges = [
        _judge('{"reason": "It is.", "score": 4}'),
        # It prefers what comes first, whatever that is.
        _judge('{"reason": "It is first.", "better": "first"}', pairwise=True),
        _judge('Its form is {"reason": "It is.", "score": 5}'),
        _judge('{"reason": "It is.", "score": 5}', budget_usd=0.0025),
    ]
    evaluation_id = await _start(fleet, version=2, against=1, evaluators=judges, threshold=0.9)
    done = await _played(fleet, fleet.worker(), evaluation_id)
    assert (done.status, done.done) == ("done", 4)
    # Four answers, a script that has them with a cost of 0.001 each, and the judges' calls: 4, 4, 4 and 2.
    assert (done.spent_usd, done.judges_spent_usd) == (pytest.approx(0.018), pytest.approx(0.014))
    assert done.result is not None
    scores = [(one.passed, one.failed, one.not_judged, one.mean_score) for one in done.result.evaluators]
    assert scores[:3] == [(2, 0, 0, 0.75), (2, 0, 0, 0.5), (0, 0, 2, None)]
    verdicts = [trial.verdicts for trial in await _trials(fleet, evaluation_id)]
    assert {verdict[1].reason.partition(":")[0] for verdict in verdicts} == {"a tie"}
    assert {verdict[2].reason for verdict in verdicts} == {"the judge's answer is not of the form"}
    spent = "the judge's budget of 0.0025 USD is spent: 0.002000 USD"
    assert sorted(verdict[3].reason for verdict in verdicts) == ["5 of 5: It is."] * 2 + [spent] * 2
    assert done.result.meets_threshold is False
    runs = await fleet.database.fetch("SELECT source, queue, priority FROM runs WHERE agent_id = 'evaluation-judge'")
    assert {tuple(run.values()) for run in runs} == {("evaluation", "background", -100)}
    assert await fleet.database.fetchval(_OTHERS) == 0
    # By what these judges cost; the last one has no more than its budget.
    again = EvaluationStart.model_validate(
        {"agent": _AGENT, "dataset": "orders", "version": 2, "evaluators": judges[::3], "dry_run": True}
    )
    async with fleet.database.transaction() as transaction:
        planned = await service.plan_evaluation(
            transaction, fleet.tenant_id, again, default_engine="scripted", created_by="key_1", evaluation_id=None
        )
    assert planned.estimate_usd == pytest.approx(0.002 + 2 * 0.001 + 0.002)


async def test_a_judge_is_compared_with_people_on_the_answers_that_they_rated(fleet: Harness) -> None:
    worker = fleet.worker()
    by: list[FeedbackSource] = ["person", "code"]
    runs = [await fleet.submit("Where is order 1?", agent_id=_AGENT) for _ in by]
    await fleet.settle(worker)
    for run, source in zip(runs, by, strict=True):
        await give_feedback(fleet.work, Giver(fleet.tenant_id, "key_1", source), run.run_id, FeedbackGive(score=-1))
    async with fleet.database.transaction() as transaction:
        taken = {"runs": {"agent_id": _AGENT}, "expected": "answer", "split": "rated"}
        await take_examples(transaction, fleet.tenant_id, "orders", ExamplesFromRuns.model_validate(taken))
    evaluation_id = await _start(fleet, evaluators=[_judge('{"reason": "It is.", "score": 5}')], split="rated")
    done = await _played(fleet, worker, evaluation_id)
    assert done.result is not None
    calibration = done.result.evaluators[0].calibration
    assert calibration is not None
    # Two answers of this version, and that of the run which a person rated.
    assert (calibration.answers, calibration.agreement) == (1, None)
    assert done.judges_spent_usd == pytest.approx(0.003)
    asked = await fleet.database.fetch(
        "SELECT r.content FROM evaluation_judgements j JOIN runs r ON r.id = j.run_id WHERE j.human_score = -1"
    )
    assert "It was sent." in str(asked[0]["content"])
    assert "expected" not in str(asked[0]["content"])


async def test_questions_to_judges_end_with_a_canceled_evaluation(fleet: Harness) -> None:
    evaluation_id = await _start(fleet, evaluators=[_judge('{"reason": "It is.", "score": 4}')])
    ticker, worker = EvaluationTicker(fleet.work, SystemClock(), Judges(None)), fleet.worker()
    await ticker.tick()
    await fleet.settle(worker)
    await ticker.tick()
    await service.cancel_evaluation(fleet.work, fleet.tenant_id, evaluation_id)
    statuses = await fleet.database.fetchval(
        "SELECT array_agg(DISTINCT status) FROM runs WHERE agent_id = 'evaluation-judge'"
    )
    assert statuses == ["canceled"]
    assert {trial.verdicts[0].reason for trial in await _trials(fleet, evaluation_id)} == {AWAITED}


async def test_a_canceled_evaluation_ends_its_runs_and_keeps_what_was_judged(fleet: Harness) -> None:
    evaluation_id = await _start(fleet)
    await EvaluationTicker(fleet.work, SystemClock(), Judges(None)).tick()
    canceled = await service.cancel_evaluation(fleet.work, fleet.tenant_id, evaluation_id)
    assert (canceled.status, canceled.result is None) == ("canceled", False)
    statuses = await fleet.database.fetchval("SELECT array_agg(DISTINCT status) FROM runs WHERE source = 'evaluation'")
    assert statuses == ["canceled"]
    assert await fleet.database.fetchval("SELECT count(*) FROM effects") == 0
    again = await service.cancel_evaluation(fleet.work, fleet.tenant_id, evaluation_id)
    assert again.finished_at == canceled.finished_at
    async with fleet.database.connection() as connection:
        await service.delete_evaluation(connection, fleet.tenant_id, evaluation_id)
    assert await fleet.database.fetchval("SELECT count(*) FROM evaluation_trials") == 0


async def test_similarity_is_judged_once_the_embedding_model_answers(fleet: Harness) -> None:
    model = SeededEmbeddings()
    model.fails = True
    evaluation_id = await _start(fleet, version=1, against=2, evaluators=(Similarity(),))
    ticker, worker = EvaluationTicker(fleet.work, SystemClock(), Judges(model)), fleet.worker()
    for _ in range(3):
        await ticker.tick()
        await fleet.settle(worker)
    waiting = await _find(fleet, evaluation_id)
    assert (waiting.status, waiting.done) == ("running", 0)
    model.fails = False
    # Another worker has claimed them.
    await fleet.database.execute("UPDATE evaluations SET judging_until = now() + interval '1 minute'")
    await ticker.tick()
    assert (await _find(fleet, evaluation_id)).done == 0
    # It crashed.
    await fleet.database.execute("UPDATE evaluations SET judging_until = now() - interval '1 minute'")
    late = EvaluationTicker(fleet.work, SystemClock(), Judges(_LosesItsClaim(fleet)))
    await late.tick()
    assert (await _find(fleet, evaluation_id)).done == 0
    assert await fleet.database.fetchval("SELECT judging_until > now() FROM evaluations"), "it is the other's"
    await fleet.database.execute("UPDATE evaluations SET judging_until = now() - interval '1 minute'")
    done = await _played(fleet, worker, evaluation_id, model)
    assert done.result is not None
    assert done.result.baseline is not None
    assert (done.result.candidate.passed, done.result.baseline.failed) == (2, 2)


@proves("rollouts.shadow")
async def test_a_candidate_answers_turns_of_the_current_version_in_its_shadow(fleet: Harness) -> None:
    again = {"tool": {"name": "lookup", "input": {"order": 1}, "result": "AGAIN"}}
    spec = _spec([again, {"say": "I looked.", "usage": {"cost_usd": 0.002}}])
    database, tenant_id = fleet.database, fleet.tenant_id
    await database.execute(_VERSION.replace(", 2,", ", 3,"), tenant_id=tenant_id, agent_id=_AGENT, spec=spec)
    registry = default_registry(database, fleet.settings, SystemClock())
    start = RolloutStart(
        version=3, steps=(RolloutStep(percent=0),), shadow=RolloutShadow(percent=100, budget_usd=0.003)
    )
    agents = Agents(database, registry, CeilingRules.of(fleet.settings))
    rollout = await start_rollout(
        fleet.work, agents, tenant_id, _AGENT, start, rights=AuthorRights(), default_engine="scripted"
    )
    assert rollout.shadow is not None
    evaluation_id = rollout.shadow.evaluation
    ticker, worker = EvaluationTicker(fleet.work, SystemClock(), Judges(None)), fleet.worker()
    sweep = RolloutSweep(fleet.work)

    async def asked(text: str) -> Accepted:
        accepted = await fleet.submit(text, agent_id=_AGENT)
        await fleet.settle(worker)
        left = await database.fetchval(_OTHERS)
        for _ in range(3):
            await asyncio.gather(sweep.sweep(), sweep.sweep())
            await ticker.tick()
            await fleet.settle(worker)
        # What the candidate did has no effects, and nothing is delivered.
        assert await database.fetchval(_OTHERS) == left
        return accepted

    first = await asked("Where is order 1?")
    shadow = await _find(fleet, evaluation_id)
    assert (shadow.status, shadow.trials, shadow.done, shadow.spent_usd) == ("running", 2, 2, 0.002)
    candidate, baseline = await _trials(fleet, evaluation_id)
    assert (candidate.key, candidate.answer, candidate.cost_usd) == (first.run_id, "I looked.", 0.002)
    assert (baseline.run_id, baseline.answer, baseline.cost_usd) == (first.run_id, "It was sent.", 0.001)
    assert candidate.run_id is not None
    run = await fleet.run(candidate.run_id)
    assert (run["agent_version"], run["source"], run["queue"], run["priority"]) == (3, "evaluation", "background", -100)
    assert run["thread_id"] != first.thread_id
    # Its call got the result that the turn has; no tool ran again.
    shown = str([row["content"] for row in await fleet.transcript(candidate.run_id)])
    assert "LIVE" in shown
    assert "AGAIN" not in shown
    turns = await database.fetchval("SELECT count(*) FROM turns WHERE thread_id = :id", id=first.thread_id)
    assert turns == 1
    await asked("And order 2?")
    assert (await _find(fleet, evaluation_id)).status == "stopped", "its budget is spent"
    await asked("And order 3?")
    ended = await _find(fleet, evaluation_id)
    assert ended.result is not None
    assert ended.result.baseline is not None
    assert (ended.trials, ended.result.candidate.cost_usd, ended.result.baseline.cost_usd) == (4, 0.004, 0.002)


@proves("evaluators.python")
async def test_functions_of_a_project_judge_in_a_process_and_what_they_cannot_is_not_judged(
    fleet: Harness, tmp_path: Path
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "judges.py").write_text(_JUDGES, encoding="utf-8")
    project = {"name": "shop", "folder": str(tmp_path), "tenant": fleet.tenant_id}
    tools = Settings.model_validate({"tools": {"projects": [project]}}).tools
    settings = fleet.settings.model_copy(update={"tools": tools})
    registry = default_registry(fleet.database, settings, SystemClock())
    evaluators = tuple(Function(function=f"shop:{name}") for name in ("looked", "grade", "fail", "wrong", "sleep"))
    with pytest.raises(InvalidInput, match="No live worker has all of these evaluators in Python: shop:looked"):
        await _start(fleet, evaluators=evaluators)
    async with fleet.database.connection() as connection:
        await announce(connection, "wkr_1", WorkerPool(), registry.installation())
    evaluation_id = await _start(fleet, evaluators=evaluators)
    worker = fleet.worker()
    for _ in range(2):
        # A worker without the project leaves the answers to the one that has it.
        await EvaluationTicker(fleet.work, SystemClock(), Judges(None)).tick()
        await fleet.settle(worker)
    assert (await _find(fleet, evaluation_id)).done == 0
    programs = McpToolPrograms(ConnectionPool(start_timeout_s=60))

    async def get() -> McpToolPrograms:
        return programs

    functions = UserEvaluators(registry, fleet.database, CeilingRules.of(settings), get)
    assert functions.has(tenant_id=fleet.tenant_id, function="shop:looked")
    assert not functions.has(tenant_id="ten_other", function="shop:looked"), "it is another tenant's project"
    try:
        ticker = EvaluationTicker(fleet.work, SystemClock(), Judges(None, functions))
        for _ in range(2):
            await ticker.tick()
    finally:
        await programs.close()
    assert (await _find(fleet, evaluation_id)).status == "done"
    looked, grade, *rest = (await _trials(fleet, evaluation_id))[0].verdicts
    assert (looked.status, looked.score, looked.reason) == ("passed", 1, "It asked 'Where is order 1?'.")
    assert (grade.status, grade.score) == ("failed", 0.5)
    assert {verdict.status for verdict in rest} == {"not_judged"}
    failed, wrong, late = (verdict.reason for verdict in rest)
    assert "ValueError: no grammar" in failed
    assert "judges.py:" in failed
    assert "It returned 'good', of type str; expected a Judgement" in wrong
    assert "0.2 s" in late


async def test_what_cannot_be_evaluated_is_refused(fleet: Harness) -> None:
    await fleet.add_agent("coder", {"name": "Coder", "engine": "claude_agent"})
    with pytest.raises(InvalidInput, match="cannot be replayed"):
        await _start_of(fleet, "coder")
    with pytest.raises(NotFound, match="no such version"):
        await _start(fleet, version=3)
    with pytest.raises(NotFound, match="unknown"):
        await _start_of(fleet, "unknown")
    with pytest.raises(InvalidInput, match="no such examples"):
        await _start(fleet, split="none")
    with pytest.raises(NotFound, match="version"):
        await _start(fleet, dataset_version=9)
    assert await _start(fleet, dry_run=True) == ""
    assert await fleet.database.fetchval("SELECT count(*) FROM evaluations") == 0


async def _start_of(harness: Harness, agent: str) -> None:
    start = EvaluationStart(agent=agent, version=1, dataset="orders")
    async with harness.database.transaction() as transaction:
        await service.plan_evaluation(
            transaction,
            harness.tenant_id,
            start,
            default_engine="scripted",
            created_by="key_1",
            evaluation_id=service.new_evaluation_id(),
        )
