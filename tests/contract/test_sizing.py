"""The page on sizing is made from the figures of other pages, and more load never needs less."""

from __future__ import annotations

import runpy
import subprocess
import sys
from typing import Any

import pytest

from tests.support.data.documents import ROOT

_PROGRAM = ROOT / "deploy" / "environment" / "sizing.py"


@pytest.fixture(scope="module")
def sizing() -> dict[str, Any]:
    return runpy.run_path(str(_PROGRAM))


def test_the_page_is_made_from_the_figures_of_other_pages(sizing: dict[str, Any]) -> None:
    assert (ROOT / "docs" / "deploy" / "sizing.md").read_text("utf-8") == sizing["rendered"]()


@pytest.mark.parametrize("more", [{"turns_per_s": 400}, {"seconds": 80}, {"model_calls": 8}, {"tokens": 9000}])
def test_more_load_never_needs_less(sizing: dict[str, Any], more: dict[str, float]) -> None:
    figures = sizing["measured"]()
    base = {"turns_per_s": 100.0, "seconds": 8.0}
    few, many = (sizing["needs"](sizing["Load"](**load), figures) for load in (base, base | more))
    for name in few.__dataclass_fields__:
        assert getattr(many, name) >= getattr(few, name), name
    assert many != few


def test_no_core_and_no_worker_is_fuller_than_assumed(sizing: dict[str, Any]) -> None:
    figures = sizing["measured"]()
    needed = sizing["needs"](sizing["Load"](turns_per_s=1000.0, seconds=20.0, model_calls=1.0), figures)
    assert needed.workers * 1_024 * 0.6 >= 20_000
    assert needed.workers * 0.6 >= figures.worker_cpu_ms
    assert needed.postgres_cores * 0.6 >= figures.postgres_cpu_ms


def test_a_person_reckons_a_load_of_their_own() -> None:
    command = [sys.executable, str(_PROGRAM), "--turns-per-s", "50", "--seconds", "8"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert "workers       2\n" in shown
    refused = subprocess.run([*command, "--tokens", "0"], check=False, capture_output=True, text=True, timeout=60)
    assert (refused.returncode, "'0' is not above 0" in refused.stderr) == (2, True)
