"""Guardrails: exact, judged at planned looks, rarely wrong for equal versions, and quick for worse ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import comb, isclose
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_workers.base.two_samples import larger_values, more_failures
from nova_workers.domain.rollouts.rules.guardrails import LOOKS, Guardrail, Measure, judge_look
from tests.requirements import proves
from tests.support.data.rollouts import BASELINES, WORSE, Observation, false_stops, find_breach, stopped


def _runs(measure: Measure, candidate: Iterable[float], baseline: Iterable[float]) -> list[Observation]:
    """Return the baseline's runs, then the candidate's."""
    return [
        Observation(is_candidate, {measure: value})
        for is_candidate, values in ((False, baseline), (True, candidate))
        for value in values
    ]


@proves("guardrails.false-stops")
def test_equal_versions_are_stopped_in_at_most_five_of_a_hundred_rollouts() -> None:
    assert false_stops(1_000, share=0.5, failing=0.5, runs=200) <= 0.05


@proves("guardrails.power")
@pytest.mark.parametrize("baseline", [BASELINES[0], 0.4, BASELINES[-1]])
def test_a_version_that_fails_twenty_points_more_is_stopped_within_200_runs(baseline: float) -> None:
    """Both ends and the hardest baseline, at the hardest share: the current version has the fewest runs then."""
    assert stopped(1_000, share=0.5, baseline=baseline, worse=WORSE) >= 0.95


def test_the_looks_spend_the_whole_error_once() -> None:
    assert isclose(sum(LOOKS.values()), 1.0)
    assert list(LOOKS) == sorted(LOOKS)


@given(st.integers(0, 12), st.integers(1, 12), st.integers(0, 12), st.integers(1, 12))
def test_failures_have_the_probability_of_the_hypergeometric_distribution(a: int, n: int, b: int, m: int) -> None:
    a, b = min(a, n), min(b, m)
    failures = a + b
    ways = sum(comb(failures, k) * comb(n + m - failures, n - k) for k in range(a, min(failures, n) + 1))
    assert isclose(more_failures(a, n, b, m), ways / comb(n + m, n), rel_tol=1e-6)


@settings(max_examples=20)
@given(st.permutations(range(12)))
def test_ranks_have_about_the_probability_of_all_assignments(pool: list[int]) -> None:
    values, baseline = pool[:6], pool[6:]
    sums = [sum(chosen) for chosen in combinations(range(12), 6)]
    exact = sum(each >= sum(values) for each in sums) / len(sums)
    assert abs(larger_values(values, baseline) - exact) < 0.02


def test_values_that_are_all_equal_stop_nothing() -> None:
    assert larger_values([1.0] * 50, [1.0] * 50) == 1.0
    assert more_failures(0, 50, 0, 50) == 1.0


@pytest.mark.parametrize(
    ("measure", "candidate", "baseline"),
    [("cost", 2.0, 1.0), ("latency", 2.0, 1.0), ("feedback", -1.0, 1.0), ("judge", 0.2, 0.8), ("failure", 1.0, 0.0)],
)
def test_each_measure_stops_in_its_own_direction(measure: Measure, candidate: float, baseline: float) -> None:
    random = Random(1)
    noise = 0.0 if measure == "failure" else 0.1
    worse = [candidate + noise * random.random() for _ in range(50)]
    better = [baseline + noise * random.random() for _ in range(50)]
    breach = find_breach(_runs(measure, worse, better), [Guardrail(measure)])
    assert breach is not None
    assert (breach.measure, breach.look, breach.baseline_values) == (measure, 10, 50)
    assert breach.p_value <= breach.threshold
    assert find_breach(_runs(measure, better, worse), [Guardrail(measure)]) is None


def test_a_tolerance_permits_so_much_more() -> None:
    random = Random(2)
    baseline = [random.lognormvariate(0, 0.5) for _ in range(200)]
    dearer = [1.5 * random.lognormvariate(0, 0.5) for _ in range(200)]
    runs = _runs("cost", dearer, baseline)
    assert find_breach(runs, [Guardrail("cost")]) is not None
    assert find_breach(runs, [Guardrail("cost", tolerance=0.5)]) is None
    scores = _runs("judge", [0.6, 0.7] * 100, [0.7, 0.8] * 100)
    assert find_breach(scores, [Guardrail("judge")]) is not None
    assert find_breach(scores, [Guardrail("judge", tolerance=0.1)]) is None


def test_what_is_found_does_not_depend_on_when_it_is_asked_for() -> None:
    """Later runs change nothing: a judge that looks every second finds what one finds that looks at the end."""
    random = Random(3)
    runs = [Observation(random.random() < 0.5, {"failure": float(random.random() < 0.4)}) for _ in range(400)]
    runs = [
        Observation(run.is_candidate, {"failure": 1.0}) if run.is_candidate and random.random() < 0.5 else run
        for run in runs
    ]
    guardrails = [Guardrail("failure"), Guardrail("cost")]
    found = [find_breach(runs[:end], guardrails) for end in range(0, len(runs) + 1, 20)]
    first = next(breach for breach in found if breach is not None)
    at = found.index(first)
    assert found == [None] * at + [first] * (len(found) - at)


def test_a_look_without_a_baseline_is_left_out() -> None:
    failing = [Observation(is_candidate=True, values={"failure": 1.0})] * 30
    succeeding = [Observation(is_candidate=False, values={"failure": 0.0})] * 10
    assert find_breach([*failing, *succeeding[:9]], [Guardrail("failure")]) is None
    late = find_breach([*failing[:20], *succeeding, *failing[:5]], [Guardrail("failure")])
    assert late is not None
    assert late.look == 25


def test_runs_without_a_value_do_not_count_for_its_guardrail() -> None:
    unrated = [Observation(is_candidate=True, values={"failure": 0.0})] * 100
    rated = _runs("feedback", [-1.0] * 9, [1.0] * 50)
    assert find_breach([*rated, *unrated], [Guardrail("feedback")]) is None


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf")])
def test_a_tolerance_without_meaning_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        Guardrail("cost", tolerance)
    with pytest.raises(ValueError, match="failures have none"):
        Guardrail("failure", 0.1)
    with pytest.raises(ValueError, match="twice"):
        judge_look(Guardrail("cost"), [Guardrail("cost"), Guardrail("cost", 0.1)], [1.0] * 10, [1.0] * 10)
