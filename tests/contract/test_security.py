"""The documents on security: the threat model names walls that tests prove, the table of scopes what routes need."""

from __future__ import annotations

import re

import pytest

from tests.requirements import REQUIREMENTS, proves
from tests.support.data.documents import ROOT
from tests.support.data.scope_table import PAGE, scope_table, table_of

_NO_WALL = "no wall"


def _tables() -> list[list[list[str]]]:
    """Return the rows of the tables of the threat model, without their heads, as cells."""
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    section = text.partition("\n## Threat model\n")[2].partition("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]] for table in tables]


def test_the_threat_model_has_walls_against_each_actor() -> None:
    actors, walls = _tables()
    assert {row[0] for row in walls} == {row[0] for row in actors}
    assert all(reaches for _, reaches in actors)


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row[0]}: {row[1]}") for row in _tables()[1]])
def test_each_wall_is_proved_or_the_row_says_what_to_do(row: list[str]) -> None:
    _, _, wall, proofs = row
    if proofs == _NO_WALL:
        assert wall.startswith("none"), "what is no wall says so, and what to do"
        return
    named = re.findall(r"`([^`]+)`", proofs)
    assert named
    assert set(named) <= REQUIREMENTS.keys()


def test_each_promise_on_security_is_in_the_threat_model() -> None:
    named = {name for *_, proofs in _tables()[1] for name in re.findall(r"`([^`]+)`", proofs)}
    assert {name for name in REQUIREMENTS if name.startswith(("security.", "ceilings."))} <= named


@proves("security.scopes")
def test_the_table_of_scopes_is_what_the_routes_need() -> None:
    shown = table_of(PAGE.read_text("utf-8"))
    assert shown == scope_table(), "write it anew: python -m tests.support.data.scope_table"


def test_only_routes_compare_scopes() -> None:
    """The table of scopes is read from them, and from the dependency in `api.auth` that the document names."""
    files = {
        path.relative_to(ROOT / "api").as_posix()
        for path in (ROOT / "api").rglob("*.py")
        if re.search(r"caller\.(need|may|scopes)\b", path.read_text("utf-8"))
    }
    assert {file for file in files if not file.startswith("routes/")} == {"auth.py"}
