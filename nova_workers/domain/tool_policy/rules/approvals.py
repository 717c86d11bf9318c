"""Which approval rule of an agent fits a tool call."""

import json
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from nova_workers.contracts.agents import ApprovalRule
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.native import SHELL_TOOL
from nova_workers.contracts.orchestration import RUN_BASH
from nova_workers.domain.tool_policy.rules.commands import (
    MAX_COMMANDS,
    MAX_LINE_CHARS,
    matching,
    permitting,
    read_command,
)

_MAIN_ARGUMENTS = ("command", "file_path", "path", "pattern", "url", "query", "prompt", "title", "name", "id")
"""What a call may be about, where it has several texts; the first that it has is shown to people."""

_NATIVE_MAIN: Final[Mapping[str, tuple[str, ...]]] = {
    SHELL_TOOL: ("command",),
    "Read": ("file_path",),
    "Write": ("file_path",),
    "Edit": ("file_path",),
    "Glob": ("path", "pattern"),
    "Grep": ("path", "pattern"),
    "WebFetch": ("url",),
    "WebSearch": ("query",),
}
"""What native tools are about. They ignore arguments that they do not know, so no other may take the place of these."""
_FOREIGN: Final = "mcp__"
"""Tools of servers from outside, which may ignore arguments, too. Our own refuse unknown ones."""

_MAX_JSON_CHARS = 1_000_000
"""Matching runs on the event loop. A model's longest response is far shorter; no rule permits a longer text, and each
other rule applies to it."""


def first_rule(rules: Iterable[ApprovalRule], tool_name: str, params: JsonObject) -> ApprovalRule | None:
    """Return the first rule that fits a call; None where none does."""
    return next((rule for rule in rules if fnmatchcase(tool_name, rule.tool) and _fits(rule, tool_name, params)), None)


def lasting_call(tool_name: str, params: JsonObject) -> JsonObject:
    """Return the call that "always" allows in an orchestration: a tool, or one shell command."""
    if tool_name in (SHELL_TOOL, RUN_BASH):
        return {"tool": SHELL_TOOL, "command": str(params.get("command", "")).strip(" \t\n")}
    return {"tool": tool_name}


def describe_rule(rule: ApprovalRule) -> str:
    """Return a rule in one line, as in ``always: Bash git *`` and ``ask: mcp__* issue.state=closed``."""
    arguments = (f"{path}={pattern}" for path, pattern in (rule.arguments or {}).items())
    return " ".join(filter(None, (f"{rule.decision}:", rule.tool, rule.pattern, *arguments)))


def main_text(tool_name: str, params: JsonObject) -> str | None:
    """Return the text that describes a call best: its only one, or the one that tells most. None if it has none."""
    if tool_name in _NATIVE_MAIN:
        return _native_main(tool_name, params)
    texts = {name: value for name, value in params.items() if isinstance(value, str)}
    if len(texts) == 1:
        return next(iter(texts.values()))
    return next((texts[name] for name in _MAIN_ARGUMENTS if name in texts), None)


def _native_main(tool_name: str, params: JsonObject) -> str | None:
    found = (params.get(name) for name in _NATIVE_MAIN[tool_name])
    return next((value for value in found if isinstance(value, str)), None)


def _fits(rule: ApprovalRule, tool_name: str, params: JsonObject) -> bool:
    if rule.arguments is not None and not _fits_arguments(rule, rule.arguments, tool_name, params):
        return False
    if rule.pattern is None:
        return True
    if tool_name == SHELL_TOOL:
        return _fits_command(rule, rule.pattern, str(params.get("command", "")))
    if rule.decision == "always":
        return _fits_text(rule, rule.pattern, _certain_text(tool_name, params))
    return any(_fits_text(rule, rule.pattern, text) for text in _all_texts(tool_name, params))


def _fits_arguments(rule: ApprovalRule, arguments: Mapping[str, str], tool_name: str, params: JsonObject) -> bool:
    for path, pattern in arguments.items():
        if tool_name == SHELL_TOOL and path == "command":
            fits = _fits_command(rule, pattern, str(params.get("command", "")))
        else:
            fits = _fits_text(rule, pattern, _argument(params, path, with_parts=rule.decision != "always"))
        if not fits:
            return False
    return True


def _argument(params: JsonObject, path: str, *, with_parts: bool) -> str | None:
    """Return the value at a path as text. None if there is none; a list or object counts only `with_parts`."""
    value: Any = params
    for step in path.split("."):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    if isinstance(value, str):
        return value
    return _json(value) if with_parts or not isinstance(value, Mapping | list) else None


def _certain_text(tool_name: str, params: JsonObject) -> str | None:
    """Return the text that a call is about, if no other argument can have taken its place; for permitting."""
    if tool_name in _NATIVE_MAIN:
        text = _native_main(tool_name, params)
        return None if text is None or ".." in text.split("/") else text
    if len(params) != 1 and tool_name.startswith(_FOREIGN):
        return None
    texts = [value for value in params.values() if isinstance(value, str)]
    has_parts = any(isinstance(value, Mapping | list) for value in params.values())
    return texts[0] if len(texts) == 1 and not has_parts else None


def _all_texts(tool_name: str, params: JsonObject) -> Iterator[str]:
    """Yield everything that a call may be about; for forbidding."""
    shown = main_text(tool_name, params)
    if shown is not None:
        yield shown
    if tool_name not in _NATIVE_MAIN:
        yield from (value for name in _MAIN_ARGUMENTS if isinstance(value := params.get(name), str))
    yield _json(params)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _fits_command(rule: ApprovalRule, pattern: str, command: str) -> bool:
    """Return whether a rule fits a line: if it forbids, any command of the line; if it permits, all of them.

    A line that cannot be read may contain any command.
    """
    read = read_command(command) if len(command) <= MAX_LINE_CHARS else None
    if read is None or len(read.bare) > MAX_COMMANDS:
        return rule.decision != "always"
    if rule.decision == "always":
        return bool(read.plain) and all(permitting((pattern,), words) is not None for words in read.plain)
    return not read.readable or matching((pattern,), *read.visible) is not None


def _fits_text(rule: ApprovalRule, pattern: str, text: str | None) -> bool:
    if text is None:
        return False
    if len(text) > _MAX_JSON_CHARS:
        return rule.decision != "always"
    return matching((pattern,), text) is not None
