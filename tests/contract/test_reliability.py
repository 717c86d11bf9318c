"""docs/reliability.md: its promises exist and are proved, its checks and settings are those of the source."""

from __future__ import annotations

import re

import pytest

from nova_workers.base.config import Settings
from tests.chaos.checker.verdict import INVARIANTS
from tests.requirements import REQUIREMENTS
from tests.support.data.documents import ROOT

_PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")
_FAMILIES = {
    *("submit", "claim", "suspend", "journal", "tools", "finish", "drain", "recover", "redis", "events", "beat"),
    *("outbox", "effects", "triggers", "unavailable", "upgrade", "backup", "restore"),
}
"""Of the promises about faults."""


def _rows(heading: str, columns: int) -> list[list[str]]:
    section = _PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    return [row for row in rows if len(row) == columns and not set(row[0]) <= {"-", " "}]


_GUARANTEES = _rows("Guarantees", 3)[1:]


@pytest.mark.parametrize("row", [pytest.param(row, id=row[0].strip("*")) for row in _GUARANTEES])
def test_each_guarantee_names_promises_with_tests(row: list[str]) -> None:
    named = set(re.findall(r"`([^`]+)`", row[2]))
    assert named
    assert named <= REQUIREMENTS.keys()
    assert set(re.findall(r"\bI\d\b", row[2])) <= INVARIANTS.keys()


def test_each_family_of_promises_about_faults_is_on_the_page() -> None:
    named = {promise.partition(".")[0] for row in _GUARANTEES for promise in re.findall(r"`([^`]+)`", row[2])}
    assert named >= _FAMILIES


def test_each_property_of_the_history_checker_is_on_the_page() -> None:
    assert {found for row in _GUARANTEES for found in re.findall(r"\bI\d\b", row[2])} >= INVARIANTS.keys() - {"I4"}
    assert "I1 to I9" in _PAGE


def test_the_settings_behind_the_bounds_have_their_defaults() -> None:
    shown = {row[0].strip("`"): float(row[1]) for row in _rows("Bounds", 3)[1:] if row[0].startswith("`NOVA_")}
    settings = Settings.model_validate({})
    for name, value in shown.items():
        section, _, field = name.removeprefix("NOVA_").lower().partition("__")
        assert getattr(getattr(settings, section), field) == value, name
    assert len(shown) == 10
