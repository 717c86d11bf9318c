"""Durations are rounded as people say them, in two units at most."""

import pytest

from nova_workers.base.clock import spell_duration


@pytest.mark.parametrize(
    ("seconds", "spelt"),
    [
        (0, "0.0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (60, "1 min"),
        (119.6, "2 min"),
        (185, "3 min 5 s"),
        (3_599.7, "1 h"),
        (3_725, "1 h 2 min"),
        (7_800, "2 h 10 min"),
        (86_399, "1 d"),
        (90_000, "1 d 1 h"),
        (604_800, "7 d"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, spelt: str):
    assert spell_duration(seconds) == spelt
