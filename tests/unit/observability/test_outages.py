"""The lines of an outage."""

from __future__ import annotations

import pytest
import structlog

from nova_workers.base.observability.outages import OneLineAState
from tests.support.harness.logs import recorded_logs
from tests.support.harness.manual_clock import ManualClock


def test_an_outage_is_one_line_however_often_it_is_met() -> None:
    with recorded_logs() as log:
        lines = structlog.get_logger("nova_workers.test")
        for attempt in range(1_000):
            lines.warning("doorbell.not_sent", outage="redis", attempt=attempt)
            lines.warning("lease.not_renewed", outage="postgres")
            lines.info("run.started")
    assert log.getvalue().count("doorbell.not_sent") == 1
    assert log.getvalue().count("lease.not_renewed") == 1
    assert log.getvalue().count("run.started") == 1_000


def test_an_outage_that_begins_again_is_a_line_of_its_own() -> None:
    clock = ManualClock()
    state = OneLineAState(clock.monotonic_s)
    state(None, "warning", {"event": "away", "outage": "redis"})
    for _ in range(5):
        clock.advance(59)
        with pytest.raises(structlog.DropEvent):
            state(None, "warning", {"event": "away", "outage": "redis"})
    clock.advance(61)
    assert state(None, "warning", {"event": "away", "outage": "redis"})
