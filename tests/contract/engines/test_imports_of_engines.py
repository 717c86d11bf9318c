"""What all engines share loads no vendor's SDK: a fleet of one engine does not pay for another's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import nova_workers.engines

_ENGINES = Path(next(iter(nova_workers.engines.__path__)))
_OF_VENDORS = frozenset({"anthropic", "claude_agent", "codex", "gemini", "openai"})
"""Packages of one vendor each."""
_SDKS = frozenset({"anthropic", "claude_agent_sdk", "google", "openai"})


def _imports(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def _is_of_a_vendor(name: str) -> bool:
    first, *rest = name.split(".")
    return first in _SDKS or (rest[:1] == ["engines"] and rest[1:2] != [] and rest[1] in _OF_VENDORS)


def test_modules_that_all_engines_share_import_no_sdk_and_no_engine() -> None:
    shared = [module for module in _ENGINES.rglob("*.py") if module.relative_to(_ENGINES).parts[0] not in _OF_VENDORS]
    assert len(shared) > 50
    assert _is_of_a_vendor("anthropic.types.beta")
    assert _is_of_a_vendor("nova_workers.engines.openai.content")
    found = {
        str(module.relative_to(_ENGINES)): names
        for module in shared
        if (names := [name for name in _imports(module) if _is_of_a_vendor(name)])
    }
    assert found == {}
