"""The page of statements: it has each statement that the homes execute, with its tables and what calls it."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.data.documents import ROOT

_HOMES = ROOT / "nova_workers" / "domain"
_EXECUTES = {"fetch", "fetchrow", "fetchval", "execute", "rows"}


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "site" / "statement_reference.py"))


@pytest.fixture(scope="module")
def statements(reference: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{each.module.removeprefix('nova_workers.domain.')}.{each.name}": each for each in reference["statements"]()
    }


def _executed() -> Iterator[tuple[str, ast.expr]]:
    """Yield the first argument of each call that executes a statement, with the module that calls."""
    for path in [*_HOMES.glob("*/sql.py"), *_HOMES.glob("*/sql/**/*.py")]:
        module = ".".join(path.relative_to(_HOMES).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr=method), args=[statement, *_]) if method in _EXECUTES:
                    yield module, statement
                case _:
                    pass


def test_each_statement_that_a_home_executes_is_on_the_page(statements: dict[str, Any]) -> None:
    executed = {
        f"{module}.{node.id}" for module, node in _executed() if isinstance(node, ast.Name) and node.id.isupper()
    }
    assert len(executed) > 400
    assert executed - statements.keys() == set()


def test_each_statement_has_a_name() -> None:
    unnamed = (ast.Constant, ast.JoinedStr)
    # The exception counts the rows of a table of any name.
    assert [module for module, node in _executed() if isinstance(node, unnamed)] == ["upkeep.sql.catalog"]


def test_each_statement_is_called(statements: dict[str, Any]) -> None:
    assert [name for name, each in statements.items() if not each.callers] == []


def test_a_statement_is_shown_with_its_tables_and_what_calls_it(
    reference: dict[str, Any], statements: dict[str, Any]
) -> None:
    _, _, section = reference["page"](statements.values()).partition("## waits\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()]
    (row,) = [row for row in rows if row[0] == "`sql.records._RESOLVE`"]
    assert row[1:4] == ["`run_waits`, `runs`, `threads`, `tool_calls`, `turns`", "-", "`resolve_waits`"]
    assert "`runs.rules.waiting`" in row[4].split(", ")
