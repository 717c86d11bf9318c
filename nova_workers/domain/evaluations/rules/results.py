"""What an evaluation found: figures of both versions, their differences, and the examples that became worse. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from nova_workers.base.vocabulary import TrialArm
from nova_workers.contracts.evaluators import Evaluator, evaluator_adapter
from nova_workers.contracts.http.evaluations import (
    MAX_REGRESSIONS,
    ArmFigures,
    CalibrationView,
    DifferenceView,
    EvaluationResult,
    EvaluatorFigures,
    Regression,
    VerdictView,
)
from nova_workers.domain.evaluations.rules.differences import Difference, difference

_SEED: Final = 1
_SAME: Final = 1e-9
_NONE: Final[Mapping[int, CalibrationView]] = MappingProxyType({})

_Scores = dict[str, list[float]]
"""By example, a number of each repetition that has one."""


@dataclass(frozen=True, slots=True)
class JudgedTrial:
    """An answer that was judged."""

    key: str
    arm: TrialArm
    succeeded: bool
    verdicts: Sequence[VerdictView]
    cost_usd: float | None
    seconds: float | None

    @property
    def score(self) -> float | None:
        """The mean score of the evaluators that judged; None if none did."""
        return mean([verdict.score for verdict in self.verdicts if verdict.score is not None])


def result_of(
    evaluators: Sequence[Evaluator],
    trials: Sequence[JudgedTrial],
    *,
    has_baseline: bool,
    threshold: float | None,
    calibrations: Mapping[int, CalibrationView] = _NONE,
) -> EvaluationResult:
    """Return the result of the trials, of which some may be missing. Takes some 0.15 s for each difference of 1,000."""
    by_arm: dict[TrialArm, list[JudgedTrial]] = {"candidate": [], "baseline": []}
    for trial in trials:
        by_arm[trial.arm].append(trial)
    candidate, baseline = by_arm["candidate"], by_arm["baseline"] if has_baseline else None
    figures = _figures(candidate)
    return EvaluationResult(
        candidate=figures,
        baseline=None if baseline is None else _figures(baseline),
        evaluators=[
            _of_evaluator(at, one, candidate, baseline, calibrations.get(at)) for at, one in enumerate(evaluators)
        ],
        score=_compare(candidate, baseline, lambda trial: trial.score),
        cost_usd=_compare(candidate, baseline, lambda trial: trial.cost_usd),
        seconds=_compare(candidate, baseline, lambda trial: trial.seconds),
        regressions=[] if baseline is None else _regressions(candidate, baseline),
        meets_threshold=None if threshold is None else figures.pass_rate is not None and figures.pass_rate >= threshold,
    )


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of numbers; None of none."""
    return sum(values) / len(values) if values else None


def _figures(trials: Sequence[JudgedTrial]) -> ArmFigures:
    statuses = [verdict.status for trial in trials for verdict in trial.verdicts]
    costs = [trial.cost_usd for trial in trials if trial.cost_usd is not None]
    is_priced = bool(trials) and len(costs) == len(trials)
    return ArmFigures(
        trials=len(trials),
        succeeded=sum(trial.succeeded for trial in trials),
        passed=statuses.count("passed"),
        failed=statuses.count("failed"),
        not_judged=statuses.count("not_judged"),
        pass_rate=statuses.count("passed") / len(statuses) if statuses else None,
        cost_usd=sum(costs) if is_priced else None,
        mean_cost_usd=mean(costs) if is_priced else None,
        mean_seconds=mean([trial.seconds for trial in trials if trial.seconds is not None]),
    )


def _of_evaluator(
    at: int,
    evaluator: Evaluator,
    candidate: Sequence[JudgedTrial],
    baseline: Sequence[JudgedTrial] | None,
    calibration: CalibrationView | None,
) -> EvaluatorFigures:
    def score(trial: JudgedTrial) -> float | None:
        return trial.verdicts[at].score

    statuses = [trial.verdicts[at].status for trial in candidate]
    described: dict[str, Any] = evaluator_adapter.dump_python(evaluator, mode="json", exclude_unset=True)
    return EvaluatorFigures(
        evaluator={"kind": evaluator.kind, **described},
        passed=statuses.count("passed"),
        failed=statuses.count("failed"),
        not_judged=statuses.count("not_judged"),
        mean_score=_mean_of(candidate, score),
        baseline_mean_score=None if baseline is None else _mean_of(baseline, score),
        difference=_compare(candidate, baseline, score),
        calibration=calibration,
    )


def _mean_of(trials: Iterable[JudgedTrial], value: Callable[[JudgedTrial], float | None]) -> float | None:
    return mean([number for trial in trials if (number := value(trial)) is not None])


def _compare(
    candidate: Sequence[JudgedTrial],
    baseline: Sequence[JudgedTrial] | None,
    value: Callable[[JudgedTrial], float | None],
) -> DifferenceView | None:
    if baseline is None:
        return None
    return _view(difference(_by_example(baseline, value), _by_example(candidate, value), seed=_SEED))


def _by_example(trials: Iterable[JudgedTrial], value: Callable[[JudgedTrial], float | None]) -> _Scores:
    scores: _Scores = {}
    for trial in trials:
        of_example = scores.setdefault(trial.key, [])
        if (number := value(trial)) is not None:
            of_example.append(number)
    return scores


def _view(found: Difference) -> DifferenceView:
    return DifferenceView(
        pairs=found.pairs,
        unpaired=found.unpaired,
        mean=found.mean,
        low=found.low,
        high=found.high,
        is_clear=found.is_clear,
    )


def _regressions(candidate: Sequence[JudgedTrial], baseline: Sequence[JudgedTrial]) -> list[Regression]:
    after, before = _means(candidate), _means(baseline)
    worse = [
        Regression(key=key, candidate=after[key], baseline=before[key])
        for key in after.keys() & before.keys()
        if after[key] < before[key] - _SAME
    ]
    return sorted(worse, key=lambda one: (one.candidate - one.baseline, one.key))[:MAX_REGRESSIONS]


def _means(trials: Iterable[JudgedTrial]) -> Mapping[str, float]:
    scores = _by_example(trials, lambda trial: trial.score)
    return {key: found for key, numbers in scores.items() if (found := mean(numbers)) is not None}
