"""How far the scores of a judge agree with those of people on the same answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from typing import Final

from nova_workers.contracts.evaluators import Judge
from nova_workers.contracts.http.evaluations import CalibrationView
from nova_workers.domain.judges.rules.asking import passes

LEAST: Final = 20
"""A comparison of fewer answers has no figures: the interval of an agreement of 80 % is wider than 35 points then."""


@dataclass(frozen=True, slots=True)
class RatedAnswer:
    """An answer that people and the judge scored.

    Attributes:
        judge: From 0 to 1; None if the judge could not judge it.
        people: The mean of their scores, from -1 to 1.
    """

    judge: float | None
    people: float


def calibrate(judge: Judge, answers: Sequence[RatedAnswer]) -> CalibrationView:
    """Return how far a judge agrees with people.

    The agreement is the part of the answers that both find good, or both bad: the judge by what it lets pass, people by
    a score above or below 0. An answer of which people say neither is left out of it.
    """
    pairs = [(one.judge, one.people) for one in answers if one.judge is not None]
    not_judged = len(answers) - len(pairs)
    if len(pairs) < LEAST:
        return CalibrationView(answers=len(pairs), least=LEAST, not_judged=not_judged)
    decided = [passes(judge, score) == (people > 0) for score, people in pairs if people]
    return CalibrationView(
        answers=len(pairs),
        least=LEAST,
        not_judged=not_judged,
        agreement=sum(decided) / len(decided) if decided else None,
        rank_correlation=rank_correlation(*zip(*pairs, strict=True)),
        mean_difference=sum(score - (people + 1) / 2 for score, people in pairs) / len(pairs),
    )


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return Spearman's correlation, where equal values share their rank. None if all values of one are equal."""
    first, second = _ranks(one), _ranks(other)
    mean = (len(one) + 1) / 2
    spread = sqrt(sum((rank - mean) ** 2 for rank in first) * sum((rank - mean) ** 2 for rank in second))
    if not spread:
        return None
    return sum((a - mean) * (b - mean) for a, b in zip(first, second, strict=True)) / spread


def _ranks(values: Sequence[float]) -> list[float]:
    ranks = [0.0] * len(values)
    below = 0
    for _, places in groupby(sorted(range(len(values)), key=values.__getitem__), key=values.__getitem__):
        tied = list(places)
        for place in tied:
            ranks[place] = below + (len(tied) + 1) / 2
        below += len(tied)
    return ranks
