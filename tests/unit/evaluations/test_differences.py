"""Differences of two versions over the same examples."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from nova_workers.domain.evaluations.rules.differences import LEAST, Difference, difference

SCORES = st.dictionaries(st.sampled_from("abcdefghij"), st.lists(st.floats(0, 1), max_size=3))


@settings(max_examples=30)
@given(SCORES, SCORES, st.integers(0, 5))
def test_only_examples_that_both_versions_have_are_compared(
    before: dict[str, list[float]], after: dict[str, list[float]], seed: int
) -> None:
    found = difference(before, after, seed=seed)
    assert found.pairs + found.unpaired == len(before.keys() | after.keys())
    assert found.pairs == sum(bool(before[name] and after.get(name)) for name in before)
    assert (found.mean is None) == (found.pairs == 0)
    assert (found.low is None) == (found.high is None) == (found.pairs < LEAST)
    assert found == difference(before, after, seed=seed)
    if found.low is not None and found.high is not None and found.mean is not None:
        assert found.low - 1e-9 <= found.mean <= found.high + 1e-9


def test_an_example_that_was_not_judged_is_no_zero() -> None:
    before = {str(number): [1.0] for number in range(6)}
    assert difference(before, before | {"0": []}, seed=1) == Difference(5, 1, 0.0, 0.0, 0.0)


def test_repetitions_of_an_example_are_one_pair() -> None:
    before = {str(number): [0.0, 1.0] for number in range(10)}
    found = difference(before, {str(number): [1.0, 1.0, 1.0] for number in range(10)}, seed=1)
    assert (found.pairs, found.mean, found.low, found.high, found.is_clear) == (10, 0.5, 0.5, 0.5, True)


def test_the_interval_has_the_true_difference_in_about_95_of_100_datasets() -> None:
    random = Random(20_261_129)
    hits = 0
    for seed in range(100):
        before = {str(number): [random.random()] for number in range(60)}
        after = {name: [score + random.gauss(0.1, 0.3)] for name, (score,) in before.items()}
        found = difference(before, after, seed=seed)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0.1 <= found.high
    assert 88 <= hits <= 100
