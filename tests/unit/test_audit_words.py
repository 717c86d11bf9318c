"""Each action that the audit log may record has words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from models.rights.audit import AUDITED, AuditRule
from nova_workers.contracts.http.overview.audit_words import ACTIONS, describe_action
from tests.support.processes.fleet import ROOT

_IN_SQL = re.compile(r"record_act\(\s*'([a-z_]+\.[a-z_]+)'")
_OF_TRIGGERS = re.compile(r"'((?:audit|approval|question)\.[a-z]+)'")


def _of_rows(rule: AuditRule) -> Iterator[str]:
    """Yield what the trigger of a table records."""
    for operation, verb in (("INSERT", "created"), ("UPDATE", "updated"), ("DELETE", "deleted")):
        if operation in rule.operations:
            yield f"{rule.kind}.{verb}"
    yield from (f"{rule.kind}.{verb}" for _, verb in rule.marks)


def _of_calls(path: Path) -> Iterator[str]:
    """Yield what a module records by `record_act`: literals, and what it assigns to a name such as `action`."""
    text = path.read_text("utf-8")
    if "record_act(" not in text:
        return
    yield from _IN_SQL.findall(text)
    tree = ast.parse(text)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id == "record_act" and isinstance(call.args[1], ast.Constant):
            yield str(call.args[1].value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and "action" in ast.unparse(node.targets[0]):
            yield from re.findall(r"'([a-z_]+\.[a-z_]+)'", ast.unparse(node.value))


def _recorded() -> set[str]:
    found = {action for rule in AUDITED.values() for action in _of_rows(rule)}
    for room in ("api", "nova_workers"):
        found |= {action for path in (ROOT / room).rglob("*.py") for action in _of_calls(path)}
    for path in (ROOT / "models" / "rights").glob("audit*.py"):
        found |= set(_OF_TRIGGERS.findall(path.read_text("utf-8")))
    return found


def test_each_action_of_the_audit_log_has_words() -> None:
    recorded = _recorded()
    assert {"key.revoked", "lease.released", "provider.cleared", "question.answered", "audit.deleted"} <= recorded
    assert recorded == ACTIONS.keys(), "add their words to audit_words.py"
    assert len(set(ACTIONS.values())) == len(ACTIONS), "two actions have the same words"
    assert not [words for words in ACTIONS.values() if "_" in words or "." in words or not words[0].isupper()]


def test_an_action_of_a_later_release_is_readable_too() -> None:
    assert describe_action("key.revoked") == "Key revoked"
    assert describe_action("master_key.turned_over") == "Master key turned over"
