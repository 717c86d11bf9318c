"""Every promise has a test, and every proof a promise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import REQUIREMENTS, proves

_TESTS = Path(__file__).resolve().parents[1]
_NOT_IN_MAKE_TEST = "pytest.mark.long"


def _claims(source: str) -> Iterator[tuple[str, str]]:
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
def _proofs() -> dict[str, list[str]]:
    proofs: dict[str, list[str]] = {}
    for file in sorted(_TESTS.rglob("test_*.py")):
        for promise, test in _claims(file.read_text("utf-8")):
            assert test.startswith(("test_", "Test")), f"{file.name}: {test} is no test"
            proofs.setdefault(promise, []).append(test)
    return proofs


def test_every_promise_is_proved_by_a_test():
    unproved = sorted(REQUIREMENTS.keys() - _proofs().keys())
    assert not unproved, f"no test proves {unproved}"


def test_every_proof_names_a_promise():
    unknown = sorted(_proofs().keys() - REQUIREMENTS.keys())
    assert not unknown, f"not promised in tests/requirements.py: {unknown}"


def test_a_test_cannot_prove_an_unknown_promise():
    with pytest.raises(KeyError, match="no-such-promise"):
        proves("no-such-promise")


def test_claims_are_read_from_the_source():
    source = "@proves('a', 'b')\nasync def test_x(): ...\n@other('c')\ndef test_y(): ...\n"
    source += "@proves('d')\n@pytest.mark.long\ndef test_z(): ...\n"
    assert list(_claims(source)) == [("a", "test_x"), ("b", "test_x")]
