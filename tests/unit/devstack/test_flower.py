"""Flower, as its configuration sets it up."""

from __future__ import annotations

import os
import subprocess
import sys

from nova_workers.devstack.commands import FLOWER_CONFIG

_COMPARE_THRESHOLDS = f"""
import gc, runpy

of_python = gc.get_threshold()
from nova_workers.base.program import collect_seldom

collect_seldom()
runpy.run_path({str(FLOWER_CONFIG)!r})
print(of_python == gc.get_threshold())
"""


def test_flower_frees_the_tasks_that_it_drops_as_often_as_python_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COMPARE_THRESHOLDS],
        env={**os.environ, "NOVA_FLOWER__PASSWORD": "secret"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"
