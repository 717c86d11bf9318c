"""When a candidate stops by itself: guardrails that compare it with the current version, at planned looks. Pure.

Each guardrail is a test that the candidate is worse, repeated when the candidate has 10, 25, 50, … values. Each look
has a share of the guardrail's error, and the guardrails share the error of the rollout: the sum bounds the probability
that a candidate which is equal to the current version is ever stopped, however often and whenever it is judged. The
looks end, so that an unimportant difference does not stop a candidate that has had thousands of runs.

docs/decisions/0061-guardrails-look-at-planned-times.md compares this with other tests, and has its measured figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final, Literal

from nova_workers.base.two_samples import larger_values, more_failures

Measure = Literal["failure", "cost", "latency", "feedback", "judge"]
"""What a guardrail watches: failed runs, dollars and seconds of a run, scores that people gave, scores of a judge."""

FALSE_STOPS: Final = 0.05
"""The highest probability that a candidate which equals the current version is stopped, by any guardrail."""
_OF_FAILURES: Final = 0.6
"""The share of failures in it, if there are other guardrails: a candidate that fails is what matters most."""

LOOKS: Final[Mapping[int, float]] = {
    10: 0.03,
    25: 0.05,
    50: 0.09,
    100: 0.14,
    200: 0.54,
    400: 0.06,
    800: 0.04,
    1_600: 0.03,
    3_200: 0.02,
}
"""After how many values of the candidate a guardrail is judged, and the share of its error that this look spends."""

MIN_BASELINE: Final = 10
"""A look needs so many values of the current version, or is left out."""
BASELINE_PER_VALUE: Final = 10
"""A look compares with the newest values of the current version, at most so many for each of the candidate: more would
cost more and tell hardly more."""

_DECIMALS: Final = 12
_LARGER_IS_WORSE: Final[Mapping[Measure, bool]] = {"cost": True, "latency": True, "feedback": False, "judge": False}


@dataclass(frozen=True, slots=True)
class Guardrail:
    """One guardrail of a rollout.

    Attributes:
        measure: What it watches.
        tolerance: How much worse the candidate may be: of cost and latency a ratio (0.2 is 20 % more), of scores a
            difference. Failures have none.
    """

    measure: Measure
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a tolerance that has no meaning.

        Raises:
            ValueError: It is negative, no number, or of failures.
        """
        if not isfinite(self.tolerance) or self.tolerance < 0:
            raise ValueError(f"tolerance: {self.tolerance!r} is no number from 0 on.")
        if self.measure == "failure" and self.tolerance:
            raise ValueError("tolerance: failures have none; the test itself allows for chance.")


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found.

    Attributes:
        look: After how many of the candidate's values.
        p_value: The probability of so large a difference, or a larger one, between equal versions.
        threshold: The error that this look may spend.
        candidate_mean: The mean of the candidate's values.
        baseline_mean: The mean of the values that it was compared with.
        baseline_values: How many these were.
    """

    measure: Measure
    look: int
    p_value: float
    threshold: float
    candidate_mean: float
    baseline_mean: float
    baseline_values: int

    @property
    def is_breach(self) -> bool:
        """Whether the candidate stops."""
        return self.p_value <= self.threshold


def next_look(judged: int) -> int | None:
    """Return with how many values of the candidate a guardrail is judged after a look; None if that was the last."""
    return next((look for look in LOOKS if look > judged), None)


def judge_look(
    guardrail: Guardrail, guardrails: Sequence[Guardrail], candidate: Sequence[float], baseline: Sequence[float]
) -> Look | None:
    """Return the result of one look; None if the current version has too few values.

    It is the same whenever it is asked for: a look takes the values up to its own, and no later ones.

    Args:
        guardrail: The one whose look it is.
        guardrails: All of the rollout, which share its error.
        candidate: The candidate's first values, as many as the look has.
        baseline: The values of the current version from before the last of these, the newest last.

    Raises:
        ValueError: Two guardrails watch the same measure.
    """
    measures: list[Measure] = [each.measure for each in guardrails]
    if len(set(measures)) < len(measures):
        raise ValueError(f"guardrails: {', '.join(measures)} names one twice.")
    if len(baseline) < MIN_BASELINE:
        return None
    error = dict(zip(measures, _errors(measures), strict=True))[guardrail.measure]
    threshold = error * LOOKS[len(candidate)]
    measure, newest = guardrail.measure, baseline[-BASELINE_PER_VALUE * len(candidate) :]
    p_value = _p_value(guardrail, candidate, newest)
    return Look(measure, len(candidate), p_value, threshold, _mean(candidate), _mean(newest), len(newest))


def _errors(measures: Sequence[Measure]) -> Iterator[float]:
    """Yield the share of each guardrail in the error of the rollout."""
    others = len(measures) - ("failure" in measures)
    of_failures = FALSE_STOPS * _OF_FAILURES if others else FALSE_STOPS
    rest = FALSE_STOPS - (of_failures if "failure" in measures else 0)
    for measure in measures:
        yield of_failures if measure == "failure" else rest / others


def _p_value(guardrail: Guardrail, candidate: Sequence[float], baseline: Sequence[float]) -> float:
    if guardrail.measure == "failure":
        failed, baseline_failed = sum(map(bool, candidate)), sum(map(bool, baseline))
        return more_failures(failed, len(candidate), baseline_failed, len(baseline))
    sign, factor, shift = 1.0, 1.0, 0.0
    if _LARGER_IS_WORSE[guardrail.measure]:
        factor = 1 / (1 + guardrail.tolerance)
    else:
        sign, shift = -1.0, guardrail.tolerance
    allowed = [_rounded(sign * (value * factor + shift)) for value in candidate]
    return larger_values(allowed, [_rounded(sign * value) for value in baseline])


def _rounded(value: float) -> float:
    """Return a value without the error of its arithmetic: 0.7 + 0.1 and 0.8 have the same rank."""
    return round(value, _DECIMALS)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
