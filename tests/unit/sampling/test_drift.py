"""Drift of scores: rarely found where there is none, found where there is one, and once."""

from __future__ import annotations

from random import Random

import pytest

from nova_workers.domain.sampling.rules.drift import REFERENCE, WINDOW, find_shift, full_windows

_SCALE = (0.0, 0.25, 0.5, 0.75, 1.0)
_USUAL = (1, 2, 5, 10, 20)
"""How often a judge gives each score of the scale."""
_WORSE = (6, 8, 10, 8, 6)


def _scores(random: Random, count: int, weights: tuple[int, ...]) -> list[float]:
    return random.choices(_SCALE, weights, k=count)


@pytest.mark.parametrize("weights", [_USUAL, (5, 0, 0, 0, 35), (1, 1, 2, 6, 90)])
def test_scores_that_do_not_change_are_rarely_a_shift(weights: tuple[int, ...]) -> None:
    random = Random(1)
    found = [find_shift(_scores(random, REFERENCE, weights), _scores(random, WINDOW, weights)) for _ in range(1_000)]
    # One alert in 1,000 windows is promised; six or more would have a probability below 0.0006.
    assert sum(shift is not None and shift.is_decline for shift in found) <= 5


def test_worse_scores_are_found_in_one_window() -> None:
    random = Random(2)
    found = [find_shift(_scores(random, REFERENCE, _USUAL), _scores(random, WINDOW, _WORSE)) for _ in range(200)]
    assert sum(shift is not None and shift.is_decline for shift in found) >= 190


def test_better_scores_are_no_decline() -> None:
    random = Random(3)
    shift = find_shift(_scores(random, REFERENCE, _WORSE), _scores(random, WINDOW, _USUAL))
    assert shift is not None
    assert (shift.is_decline, shift.after > shift.before) == (False, True)


def test_equal_scores_are_no_shift() -> None:
    assert find_shift([1.0] * REFERENCE, [1.0] * WINDOW) is None


@pytest.mark.parametrize(("scores", "windows"), [(0, 0), (100, 0), (149, 0), (150, 1), (199, 1), (200, 2)])
def test_a_window_counts_once_it_is_full(scores: int, windows: int) -> None:
    assert full_windows(scores) == windows
