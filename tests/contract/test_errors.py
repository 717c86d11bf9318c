"""Errors about things that do not exist name them by kind and id, which problem documents pass on."""

import ast
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_ELSEWHERE = ("nova_workers/errors.py", "nova_workers/console/", "nova_workers/client/")
"""Where the constructors are, and what speaks to people or repeats errors of the API."""


def test_each_error_about_a_missing_thing_has_its_kind_and_id() -> None:
    calls = [
        (f"{path}:{node.lineno}", {keyword.arg for keyword in node.keywords})
        for source in [*(_ROOT / "nova_workers").rglob("*.py"), *(_ROOT / "api").rglob("*.py")]
        if not (path := source.relative_to(_ROOT).as_posix()).startswith(_ELSEWHERE)
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"NotFound", "Gone", "AgentRenamed"}
    ]
    assert len(calls) > 10
    assert [place for place, given in calls if not {"kind", "id"} <= given] == []
