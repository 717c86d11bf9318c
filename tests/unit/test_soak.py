"""The verdict of a soak: what is flat, and what grows."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from tests.bench.machine import Machine
from tests.soak.report import Judged, Report
from tests.soak.series import Series, Verdict, sparkline


def _judged(values: list[float], *, floor: float = 0.0) -> Verdict | None:
    series = Series("memory", "MB", floor)
    for number, value in enumerate(values):
        series.add(number * 10.0, value)
    return series.verdict(tolerance=0.05, after_s=len(values) * 10.0 * 0.3)


def _noise(seed: int) -> list[float]:
    draw = random.Random(seed)
    return [100 + draw.uniform(-3, 3) for _ in range(180)]


def test_noise_spikes_and_the_warm_up_are_flat() -> None:
    values = _noise(1)
    for number in range(10):
        values[number] = 10.0 * number
    for number in (60, 100, 140):
        values[number] = 400.0
    verdict = _judged(values)
    assert verdict is not None
    assert (verdict.flat, round(verdict.level)) == (True, 100)


def test_slow_growth_under_noise_is_not_flat() -> None:
    verdict = _judged([value + number * 0.08 for number, value in enumerate(_noise(2))])
    assert verdict is not None
    assert not verdict.flat
    assert verdict.growth == pytest.approx(0.08 * 126, rel=0.15)


def test_growth_below_the_floor_and_shrinking_are_flat() -> None:
    assert (small := _judged([10 + number / 60 for number in range(180)], floor=6.0)) is not None
    assert small.flat
    assert (shrinking := _judged([100 - number / 4 for number in range(180)])) is not None
    assert shrinking.flat


def test_too_few_samples_have_no_verdict() -> None:
    assert _judged([1.0, 2.0]) is None


def _report(samples: int) -> Report:
    series = Series("memory", "MB", 0.0)
    for number in range(samples):
        series.add(number * 10.0, 100.0)
    late = Series("size of runs", "bytes a row", 0.0)
    judged = [Judged(each, each.verdict(tolerance=0.05, after_s=samples * 3.0)) for each in (series, late)]
    return Report(
        machine=Machine.this(),
        began_at=datetime.now(UTC),
        seconds=samples * 10.0,
        capacity=100.0,
        rate=20.0,
        warm_up_s=samples * 3.0,
        tolerance=0.05,
        sent=9,
        left_out=0,
        failed={},
        accepted=9,
        open_runs=0,
        judged=judged,
    )


def test_a_soak_without_a_single_verdict_is_not_flat() -> None:
    assert _report(180).problems == []
    (problem,) = _report(2).problems
    assert "enough samples" in problem


def test_a_report_names_the_rate_and_what_the_fleet_took() -> None:
    assert "20.0 turns a second; the fleet took 100.0 at most" in _report(180).heading()


def test_a_sparkline_is_as_wide_as_it_may_be_and_begins_at_zero() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], width=8) == "▁▂▃▄▅▆▇█"
    assert sparkline([100, 101, 100, 101], width=2) == "██"
    assert sparkline([]) == ""
