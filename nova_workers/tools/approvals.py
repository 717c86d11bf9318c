"""Which approval rule of an agent fits a tool call."""

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from nova_workers.contracts.agents import ApprovalRule
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.native import SHELL_TOOL
from nova_workers.contracts.orchestration import RUN_BASH
from nova_workers.tools.commands import MAX_LINE_CHARS, matching, permitting, read_command

__all__ = ["describe_rule", "first_rule", "lasting_call", "main_text"]

_MAIN_ARGUMENTS = ("command", "file_path", "path", "pattern", "url", "query", "prompt", "title", "name", "id")
"""What a call is about, where it has several texts; the first that it has."""

_MAX_JSON_CHARS = 1_000_000
"""Matching runs on the event loop. A model's longest response is far shorter; no rule permits a longer text, and each
other rule applies to it."""


def first_rule(rules: Iterable[ApprovalRule], tool_name: str, params: JsonObject) -> ApprovalRule | None:
    """Return the first rule that fits a call; None where none does."""
    texts: tuple[str, ...] | None = None
    for rule in rules:
        if not fnmatchcase(tool_name, rule.tool):
            continue
        if rule.pattern is None:
            return rule
        if tool_name == SHELL_TOOL:
            if _fits_command(rule, rule.pattern, str(params.get("command", ""))):
                return rule
            continue
        if texts is None:
            texts = _texts(params)
        if _fits_texts(rule, rule.pattern, texts):
            return rule
    return None


def lasting_call(tool_name: str, params: JsonObject) -> JsonObject:
    """Return what a person allows who always allows a call in an orchestration: a tool, or one shell command."""
    if tool_name in (SHELL_TOOL, RUN_BASH):
        return {"tool": SHELL_TOOL, "command": str(params.get("command", "")).strip(" \t\n")}
    return {"tool": tool_name}


def describe_rule(rule: ApprovalRule) -> str:
    """Return a rule in one line, as in ``always: Bash git *``."""
    return " ".join(filter(None, (f"{rule.decision}:", rule.tool, rule.pattern)))


def main_text(params: JsonObject) -> str | None:
    """Return what a call is about: its only text, or the one that tells most. None if it has no text."""
    texts = {name: value for name, value in params.items() if isinstance(value, str)}
    if len(texts) == 1:
        return next(iter(texts.values()))
    return next((texts[name] for name in _MAIN_ARGUMENTS if name in texts), None)


def _fits_command(rule: ApprovalRule, pattern: str, command: str) -> bool:
    """As for command patterns: what forbids looks at every command in the line, what permits vouches for all.

    A line that cannot be read may contain any command.
    """
    if len(command) > MAX_LINE_CHARS:
        return rule.decision != "always"
    read = read_command(command)
    if rule.decision == "always":
        return bool(read.plain) and all(permitting((pattern,), words) is not None for words in read.plain)
    return (
        not read.readable or matching((pattern,), *dict.fromkeys((read.line, *read.commands, *read.bare))) is not None
    )


def _fits_texts(rule: ApprovalRule, pattern: str, texts: Sequence[str]) -> bool:
    if any(len(text) > _MAX_JSON_CHARS for text in texts):
        return rule.decision != "always"
    return matching((pattern,), *texts) is not None


def _texts(params: JsonObject) -> tuple[str, ...]:
    whole = json.dumps(params, ensure_ascii=False, sort_keys=True, default=str)
    main = main_text(params)
    return (whole,) if main is None else (main, whole)
