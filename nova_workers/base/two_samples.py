"""Tests of two samples: how improbable is it that the candidate is so much worse, if both versions are equal. Pure.

Both hold for any distribution of the values: under equal versions each assignment of the same values to the two samples
is as probable as any other. Fisher's test is exact; that of ranks uses the normal approximation with its correction for
ties and for continuity, from 10 values of each sample on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_RELATIVE = 1e-9
"""Probabilities of outcomes that differ by rounding only are equal."""


def more_failures(failed: int, runs: int, baseline_failed: int, baseline_runs: int) -> float:
    """Return the probability of so many failures of the candidate or more, given all failures: Fisher's exact test.

    Args:
        failed: How many of the candidate's runs failed.
        runs: How many runs it had.
        baseline_failed: The same of the version that it is compared with.
        baseline_runs: How many runs that version had.
    """
    failures, total = failed + baseline_failed, runs + baseline_runs
    most = min(failures, runs)
    log_term = _log_choose(failures, failed) + _log_choose(total - failures, runs - failed) - _log_choose(total, runs)
    tail = term = math.exp(log_term)
    for count in range(failed, most):
        # The next term of the hypergeometric distribution, by its ratio to this one.
        term *= (failures - count) * (runs - count) / ((count + 1) * (total - failures - runs + count + 1))
        tail += term
        if term < tail * _RELATIVE:
            break
    return min(1.0, tail)


def larger_values(values: Sequence[float], baseline: Sequence[float]) -> float:
    """Return the probability that the candidate's values rank so high or higher: the test of Mann and Whitney."""
    ranks, ties = _rank_sum(values, baseline)
    n, m = len(values), len(baseline)
    total = n + m
    above = ranks - n * (n + 1) / 2 - n * m / 2
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 1.0
    # Half a rank less, since ranks are whole numbers and the normal distribution is not.
    return 0.5 * math.erfc((above - 0.5) / math.sqrt(2 * variance))


def _log_choose(of: int, number: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(number + 1) - math.lgamma(of - number + 1)


def _rank_sum(values: Sequence[float], baseline: Sequence[float]) -> tuple[float, int]:
    """Return the sum of the ranks of `values` among both, and what ties take from the variance."""
    merged = sorted([(value, 1) for value in values] + [(value, 0) for value in baseline])
    ranks, ties, start = 0.0, 0, 0
    while start < len(merged):
        end = start
        mine = 0
        while end < len(merged) and merged[end][0] == merged[start][0]:
            mine += merged[end][1]
            end += 1
        tied = end - start
        ranks += mine * (start + 1 + end) / 2
        ties += tied**3 - tied
        start = end
    return ranks, ties
