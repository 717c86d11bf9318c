"""The random mix of faults that `make chaos` makes for ten minutes, for 25 s, with leases of 6 s."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.runner.campaign import Campaign, brief
from tests.chaos.runner.door_clients import CLIENTS
from tests.chaos.runner.fleet import Leases
from tests.chaos.runner.report import report
from tests.chaos.runner.workload import Pace
from tests.requirements import proves

pytestmark = [pytest.mark.fleet, pytest.mark.begins_first, pytest.mark.timeout(600)]

_SEED = 4


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="nova-chaos-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@proves("recover.mix", "doors.chaos")
@pytest.mark.parametrize("seconds", [25, pytest.param(40, marks=pytest.mark.long)])
async def test_a_fleet_keeps_every_promise_under_random_faults(home: Path, seconds: int) -> None:
    pace = Pace(conversations=3, gap_s=2.0, guest_gaps=4.0, has_poison=False)
    outcome = await Campaign(home, _SEED, Leases.short(), pace).mix(seconds, brief())
    assert not outcome.violations, report(outcome)
    assert outcome.history.faults
    assert not any(fault.failed for fault in outcome.history.faults), report(outcome)
    assert outcome.history.runs_by_key()
    assert {reading.door for reading in outcome.history.doors} == CLIENTS.keys()
