"""What an evaluation found, and how it is written for continuous integration."""

from __future__ import annotations

from xml.etree import ElementTree

from nova_workers.base.vocabulary import TrialArm, VerdictStatus
from nova_workers.cli.evaluations.reports import junit_of, markdown_of
from nova_workers.contracts.evaluators import Exact, Steps
from nova_workers.contracts.http.evaluations import EvaluationView, ToolReplay, TrialView, VerdictView
from nova_workers.domain.evaluations.rules.results import JudgedTrial, result_of

_SCORES: dict[VerdictStatus, float | None] = {"passed": 1.0, "failed": 0.0, "not_judged": None}


def _verdict(status: VerdictStatus) -> VerdictView:
    return VerdictView(status=status, score=_SCORES[status], reason=f"it is \x1b{status}")


def _trial(key: str, arm: TrialArm, *statuses: VerdictStatus, cost: float | None = 0.5) -> JudgedTrial:
    return JudgedTrial(key, arm, True, [_verdict(status) for status in statuses], cost, 2.0)


def test_what_is_not_judged_is_counted_and_passes_nothing() -> None:
    trials = [_trial("a", "candidate", "passed", "not_judged"), _trial("b", "candidate", "not_judged", "not_judged")]
    result = result_of([Exact(), Steps(at_most=1)], trials, has_baseline=False, threshold=0.3)
    assert (result.candidate.passed, result.candidate.not_judged, result.candidate.pass_rate) == (1, 3, 0.25)
    assert result.meets_threshold is False
    assert (result.evaluators[1].mean_score, result.baseline, result.score) == (None, None, None)


def test_without_a_verdict_no_threshold_is_met() -> None:
    assert result_of([Exact()], [], has_baseline=False, threshold=0.0).meets_threshold is False


def test_differences_are_paired_and_the_worst_examples_come_first() -> None:
    trials = [_trial(key, "baseline", "passed", "passed") for key in "abcdef"]
    trials += [_trial(key, "candidate", "passed", "passed", cost=0.25) for key in "abcd"]
    trials += [_trial("e", "candidate", "passed", "failed"), _trial("f", "candidate", "failed", "failed")]
    result = result_of([Exact(), Steps(at_most=1)], trials, has_baseline=True, threshold=None)
    assert [one.key for one in result.regressions] == ["f", "e"]
    assert result.score is not None
    assert result.cost_usd is not None
    assert (result.score.pairs, result.score.mean) == (6, -0.25)
    assert (result.cost_usd.mean, result.meets_threshold) == (-1 / 6, None)


def test_an_unknown_price_has_no_sum() -> None:
    trials = [_trial("a", "candidate", "passed"), _trial("b", "candidate", "passed", cost=None)]
    assert result_of([Exact()], trials, has_baseline=False, threshold=None).candidate.cost_usd is None


def _evaluation() -> EvaluationView:
    trials = [_trial("a", "candidate", "failed"), _trial("a", "baseline", "passed")]
    result = result_of([Exact()], trials, has_baseline=True, threshold=0.5)
    values = {
        "id": "evl_1",
        "agent": "nova",
        "version": 8,
        "against": 7,
        "dataset": "orders",
        "dataset_version": 1,
        "split": None,
        "tags": [],
        "repeats": 1,
        "evaluators": [{"kind": "exact"}],
        "tools": ToolReplay(),
        "budget_usd": None,
        "threshold": 0.5,
        "estimate_usd": None,
        "status": "done",
        "why": None,
        "trials": 2,
        "done": 2,
        "spent_usd": 1.0,
        "result": result,
        "created_by": "key_1",
        "created_at": "2026-05-01T09:00:00Z",
        "finished_at": None,
    }
    return EvaluationView.model_validate(values)


def test_markdown_has_the_regressions_before_the_rest() -> None:
    text = markdown_of(_evaluation())
    assert text.index("| a | 0.000 | 1.000 |") < text.index("| exact | 0 | 1 | 0 | 0 | -1 |")
    assert "below the threshold of 50.0%" in text


def test_junit_has_failures_and_errors_of_the_candidate_only() -> None:
    shared = {
        "example_id": "exm_1",
        "repeat": 1,
        "state": "done",
        "run_id": None,
        "outcome": "succeeded",
        "answer": "<\x00no>",
        "error": None,
        "calls": [],
        "cost_usd": None,
        "seconds": 1.5,
        "steps": 1,
    }
    statuses: list[tuple[TrialArm, VerdictStatus]] = [
        ("candidate", "failed"),
        ("candidate", "not_judged"),
        ("baseline", "failed"),
    ]
    trials = [
        TrialView.model_validate({**shared, "id": str(at), "key": "a", "arm": arm, "verdicts": [_verdict(status)]})
        for at, (arm, status) in enumerate(statuses)
    ]
    (suite,) = ElementTree.fromstring(junit_of(_evaluation(), trials))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "1")
    assert suite[0][0].get("message") == "it is failed"
    assert suite[0][0].text == "<no>"
