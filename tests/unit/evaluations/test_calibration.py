"""How a judge's scores agree with those of people."""

from __future__ import annotations

import pytest

from nova_workers.cli.evaluations.reports import calibrations_of
from nova_workers.contracts.evaluators import Exact, Judge
from nova_workers.domain.evaluations.rules.results import result_of
from nova_workers.domain.judges.rules.calibration import LEAST, RatedAnswer, calibrate, rank_correlation

_JUDGE = Judge(rubric="x", budget_usd=1)


def _answers(*pairs: tuple[float | None, float]) -> list[RatedAnswer]:
    return [RatedAnswer(judge, people) for judge, people in pairs]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 400], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 1, 1], [1, 2, 3], None),
        # By hand: the ranks are 1, 2.5, 2.5, 4 and 1.5, 1.5, 3, 4.
        ([1, 2, 2, 3], [0, 0, 1, 2], 3.75 / 4.5),
        ([106, 100, 86, 101, 99, 103, 97, 113, 112, 110], [7, 27, 2, 50, 28, 29, 20, 12, 6, 17], -29 / 165),
    ],
)
def test_the_correlation_is_that_of_ranks(one: list[float], other: list[float], expected: float | None) -> None:
    assert rank_correlation(one, other) == (None if expected is None else pytest.approx(expected))


def test_a_judge_is_compared_with_people() -> None:
    # Passes from 0.75 on: of those that people find good it fails a quarter; it is right about half of the bad ones.
    answers = _answers(*[(1.0, 1.0)] * 9, *[(0.5, 1.0)] * 3, *[(0.0, -1.0)] * 4, *[(0.75, -1.0)] * 4, (None, 1.0))
    found = calibrate(_JUDGE, answers)
    assert (found.answers, found.not_judged, found.agreement) == (20, 1, 13 / 20)
    assert found.mean_difference == pytest.approx((9 + 1.5 + 3 - 12) / 20)
    assert found.rank_correlation is not None
    assert 0 < found.rank_correlation < 1


def test_answers_of_which_people_say_neither_are_in_no_agreement() -> None:
    found = calibrate(_JUDGE, _answers(*[(1.0, 1.0)] * 10, *[(1.0, 0.0)] * 10))
    assert (found.answers, found.agreement, found.rank_correlation) == (20, 1.0, None)


def test_too_few_answers_have_no_figures() -> None:
    found = calibrate(_JUDGE, _answers(*[(1.0, 1.0)] * (LEAST - 1), (None, 1.0)))
    assert (found.answers, found.not_judged, found.agreement, found.mean_difference) == (LEAST - 1, 1, None, None)
    calibrations = {1: found, 2: calibrate(_JUDGE, _answers(*[(1.0, 1.0)] * 10, *[(0.0, -1.0)] * 10))}
    result = result_of([Exact(), _JUDGE, _JUDGE], [], has_baseline=False, threshold=None, calibrations=calibrations)
    assert calibrations_of(result) == [
        ("2", "19: too few", "1", "", "", ""),
        ("3", "20", "0", "100.0%", "1", "+0"),
    ]
