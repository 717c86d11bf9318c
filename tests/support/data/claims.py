"""Which tests say to prove which promises of `tests/requirements.py`, as read from their source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.support.data.documents import ROOT

_NOT_IN_MAKE_TEST = "pytest.mark.long"


def claims_in(source: str) -> Iterator[tuple[str, str]]:
    """Yield each promise that a test of `make test` says to prove, with the test's name."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if any(ast.unparse(decorator) == _NOT_IN_MAKE_TEST for decorator in node.decorator_list):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "proves":
                for argument in decorator.args:
                    assert isinstance(argument, ast.Constant), f"{node.name}: promises are named by literals"
                    yield str(argument.value), node.name


@cache
def proofs() -> dict[str, list[str]]:
    """Return the tests of each promise, as pytest names them: ``tests/…/test_x.py::test_y``."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        source = file.read_text("utf-8")
        for promise, test in claims_in(source) if "proves(" in source else ():
            assert test.startswith(("test_", "Test")), f"{file.name}: {test} is no test"
            found.setdefault(promise, []).append(f"{file.relative_to(ROOT).as_posix()}::{test}")
    return found
