"""The rules for commit messages, as `make check` applies them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

_SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "environment" / "check_history.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(_SCRIPT))


def test_a_subject_with_a_body_is_accepted(script: dict[str, Any]) -> None:
    assert script["problems_of"]("Requeue runs of a crashed worker\n\nTheir leases expired.\n") == []


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("Requeue runs\n", "no body"),
        (f"{'R' * 73}\n\nWhy.", "73 characters"),
        ("requeue runs\n\nWhy.", "capital letter"),
        ("Requeue runs.\n\nWhy.", "full stop"),
        ("Requeue runs\nWhy.", "no blank line"),
    ],
)
def test_a_bad_message_is_named(script: dict[str, Any], message: str, says: str) -> None:
    (problem,) = script["problems_of"](message)
    assert says in problem


def test_every_commit_since_the_rule_keeps_it(script: dict[str, Any]) -> None:
    assert script["main"]() == 0
