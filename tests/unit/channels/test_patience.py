"""Waits between attempts."""

from __future__ import annotations

from nova_workers.client.retry import Retry


def test_any_number_of_failures_has_a_wait() -> None:
    patience = Retry(base_s=0.5, max_s=30.0)
    assert all(15.0 <= patience.delay_s(failures) <= 30.0 for failures in (100, 1_025, 100_000))
