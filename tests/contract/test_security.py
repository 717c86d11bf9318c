"""The documents on security: the threat model names walls that tests prove, the table of scopes what routes need."""

from __future__ import annotations

import re

from tests.requirements import REQUIREMENTS, proves
from tests.security import hostile_tests
from tests.support.data.documents import ROOT
from tests.support.data.scope_table import PAGE, role_table, role_table_of, scope_table, table_of
from tests.support.data.threat_model import actors, walls


def test_the_threat_model_has_walls_against_each_actor() -> None:
    assert {wall.actor for wall in walls()} == actors().keys()
    assert all(actors().values())


def test_each_wall_is_proved_or_the_row_says_what_to_do() -> None:
    for wall in walls():
        assert wall.promises or wall.what.startswith("none"), f"{wall}: what is no wall says so, and what to do"
        assert set(wall.promises) <= REQUIREMENTS.keys(), wall


def test_each_promise_on_security_is_in_the_threat_model() -> None:
    named = {promise for wall in walls() for promise in wall.promises}
    assert {promise for promise in REQUIREMENTS if promise.startswith(("security.", "ceilings.", "authors."))} <= named


def test_the_hostile_tests_are_those_of_the_threat_model() -> None:
    tests = hostile_tests()
    for name in (
        "test_hostile_clients.py",
        "test_shell_bypasses.py",
        "test_hostile_mcp_servers.py",
        "test_outbound.py",
    ):
        assert any(name in test for test in tests), name


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
    # The MCP door has one path: its methods need the scopes that docs/mcp.md names.
    assert {file for file in files if not file.startswith("routes/")} == {"auth.py", "doors/mcp/runs.py"}


def test_the_table_of_roles_is_that_of_the_application() -> None:
    shown = role_table_of(PAGE.read_text("utf-8"))
    assert shown == role_table(), "write it anew: python -m tests.support.data.scope_table"
