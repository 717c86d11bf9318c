"""How long a failed effect waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.domain.effects.rules.runner import backoff_s


@pytest.mark.parametrize(
    ("attempt", "most_s"), [(1, 5), (2, 10), (3, 20), (5, 80), (10, 2560), (11, 3600), (64, 3600), (10_000, 3600)]
)
def test_the_wait_doubles_up_to_the_longest(attempt: int, most_s: float) -> None:
    assert backoff_s(attempt, base_s=5, max_s=3600, spread=1.0) == most_s
    assert backoff_s(attempt, base_s=5, max_s=3600, spread=0.0) == most_s / 2


@given(st.integers(1, 1000), st.floats(0, 1))
def test_the_wait_is_between_half_and_all(attempt: int, spread: float) -> None:
    ceiling_s = backoff_s(attempt, base_s=1, max_s=60, spread=1.0)
    assert ceiling_s / 2 <= backoff_s(attempt, base_s=1, max_s=60, spread=spread) <= ceiling_s
