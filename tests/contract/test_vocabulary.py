"""The closed vocabularies: SQL compares only with words that are in them, and lists of them are parts of them.

Errors about things that do not exist name them by kind and id, which problem documents pass on.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import CheckConstraint

import nova_workers.domain
from models.tables import metadata
from nova_workers.base import vocabulary
from nova_workers.base.vocabulary import words_of

_ROOT = Path(__file__).parents[2]
_ABOUT_MISSING = ("NotFound", "Gone", "AgentRenamed")
_SPOKEN = ("nova_workers/base/errors.py", "nova_workers/console/", "nova_workers/client/")
"""Where errors about missing things are made, shown to people, or read from the API's answers."""


def _vocabularies() -> dict[str, set[str]]:
    """Return the words of each name that a column with a CHECK has, over all tables that have such a column."""
    allowed: dict[str, set[str]] = {}
    for table in metadata.tables.values():
        for check in table.constraints:
            if isinstance(check, CheckConstraint):
                found = re.fullmatch(r"(\w+) IN \(([^)]*)\)(?: OR .*)?", str(check.sqltext))
                if found:
                    allowed.setdefault(found[1], set()).update(re.findall(r"'(\w+)'", found[2]))
    return allowed


def _statements() -> Iterator[tuple[str, str]]:
    for module in pkgutil.walk_packages(nova_workers.domain.__path__, "nova_workers.domain."):
        if ".sql" not in module.name:
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, str) and not name.startswith("__"):
                yield f"{module.name}.{name}", value


ALLOWED = _vocabularies()
_WORDS = r"'\w+'(?:\s*,\s*'\w+')*"
_COMPARED = re.compile(rf"\b({'|'.join(ALLOWED)})\s*(?:=|<>|!=|(?:NOT\s+)?IN\s*\()\s*({_WORDS})", re.IGNORECASE)


def _unknown_words(sql: str) -> list[str]:
    return [
        f"{column} {word!r}"
        for column, words in _COMPARED.findall(sql)
        for word in re.findall(r"'(\w+)'", words)
        if word not in ALLOWED[column]
    ]


def test_statements_compare_with_values_of_the_vocabulary() -> None:
    statements = dict(_statements())
    assert sum(len(_COMPARED.findall(sql)) for sql in statements.values()) > 100
    assert {name: found for name, sql in statements.items() if (found := _unknown_words(sql))} == {}


@pytest.mark.parametrize(
    ("sql", "unknown"),
    [
        ("WHERE r.status = 'cancelled'", ["status 'cancelled'"]),
        ("WHERE status NOT IN ('queued', 'runing')", ["status 'runing'"]),
        ("SET status = 'running', queue = 'system'", ["queue 'system'"]),
        ("WHERE kind <> 'user'", []),
    ],
)
def test_a_value_outside_the_vocabulary_is_found(sql: str, unknown: list[str]) -> None:
    assert _unknown_words(sql) == unknown


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        (vocabulary.DUE_RUNS, vocabulary.OpenRunStatus),
        (vocabulary.OPEN_RUNS, vocabulary.RunStatus),
        (vocabulary.ENDED_RUNS, vocabulary.RunStatus),
        (vocabulary.RUN_QUEUES, vocabulary.Queue),
        (vocabulary.ENDED_TURNS, vocabulary.TurnStatus),
        (vocabulary.OPEN_TASKS, vocabulary.TaskStatus),
        (vocabulary.OPEN_EFFECTS, vocabulary.EffectStatus),
        (words_of(vocabulary.WebhookKind), vocabulary.DeliveryKind),
    ],
)
def test_a_part_of_a_vocabulary_is_within_it(part: tuple[str, ...], whole: Any) -> None:
    assert set(part) < set(words_of(whole))


def test_each_column_of_stop_reasons_is_checked() -> None:
    tables = [table for table in metadata.tables.values() if "stop_reason" in table.columns]
    assert len(tables) >= 4
    for table in tables:
        checks = {str(check.name) for check in table.constraints if isinstance(check, CheckConstraint)}
        assert f"ck_{table.name}__stop_reason" in checks


def test_a_run_is_open_or_ended() -> None:
    assert (*vocabulary.OPEN_RUNS, *vocabulary.ENDED_RUNS) == words_of(vocabulary.RunStatus)


def test_each_error_about_a_missing_thing_has_its_kind_and_id() -> None:
    calls = [
        (f"{path}:{node.lineno}", {keyword.arg for keyword in node.keywords})
        for source in [*(_ROOT / "nova_workers").rglob("*.py"), *(_ROOT / "api").rglob("*.py")]
        if not (path := source.relative_to(_ROOT).as_posix()).startswith(_SPOKEN)
        if any(f"{name}(" in (text := source.read_text()) for name in _ABOUT_MISSING)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ABOUT_MISSING
    ]
    assert len(calls) > 10
    assert [place for place, given in calls if not {"kind", "id"} <= given] == []
