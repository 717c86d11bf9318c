"""Two checkouts are compared, on tiny sizes."""

import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).resolve().parents[3]


@pytest.mark.long
@pytest.mark.fleet
@pytest.mark.timeout(300)
def test_two_checkouts_are_measured_in_turns() -> None:
    sizes = ("--rounds", "1", "--seconds", "1", "--clients", "2", "--idle", "2", "--burst", "2")
    command = (sys.executable, "-m", "tests.bench.side_by_side", str(_HERE), *sizes)
    done = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, check=True, timeout=280)
    for figure in ("turns a second", "CPU a turn", "worker", "wait p50", "first event", "2 turns of 2 s"):
        assert figure in done.stdout
