"""The order of migrations, as `make check` checks it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

_SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "environment" / "check_migrations.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(_SCRIPT))


def migration(revision: str, down: str | None) -> str:
    before = "None" if down is None else f'"{down}"'
    return f'"""Something."""\n\nrevision = "{revision}"\ndown_revision = {before}\n'


def test_migrations_that_follow_each_other_are_accepted(script: dict[str, Any]) -> None:
    assert script["problems_of"]({"0001_a.py": migration("0001", None), "0002_b.py": migration("0002", "0001")}) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("0002_c.py", migration("0002", "0001")),
        ("0003_c.py", migration("0003", "0001")),
        ("0003_c.py", migration("0002", "0001")),
        ("0004_c.py", migration("0004", "0002")),
        ("0003_c.py", "revision = '0003'"),
    ],
    ids=["same number", "same parent", "other file name", "gap", "no parent"],
)
def test_migrations_of_two_branches_that_met_are_refused(script: dict[str, Any], name: str, text: str) -> None:
    others = {"0001_a.py": migration("0001", None), "0002_b.py": migration("0002", "0001")}
    (problem,) = script["problems_of"]({**others, name: text})
    assert name in problem
