"""Writes agents and triggers as files of a project."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from nova_workers.cli.projects.marked_yaml import JsonDumper
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.triggers import TriggerCreate, TriggerView

SCHEMAS: Final = "schemas"


class _Dumper(JsonDumper):
    """Writes texts of several lines as such, and lists inside their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists, too."""
        super().increase_indent(flow, False)


# YAML takes them for ends of lines, which it folds; double quotes escape them.
_OTHER_LINE_ENDS: Final = re.compile(r"[\r\x85\u2028\u2029]")


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    lines = value.split("\n")
    style = "|" if len(lines) > 1 and all(line == line.rstrip() for line in lines) else None
    if _OTHER_LINE_ENDS.search(value):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def agent_markdown(spec: AgentSpec) -> str:
    """Return the file of an agent: its fields as front matter, its instructions as text.

    Its reader drops the end of the last line, and one empty line after the front matter.
    """
    values = AgentSpec.model_dump(spec, mode="json", exclude_defaults=True, include=set(AgentSpec.model_fields))
    instructions = values.pop("instructions", "")
    head = _schema("agent", "../") + dump(values)
    if not instructions:
        return f"---\n{head}---\n"
    apart = "\n" if instructions.startswith("\n") else ""
    return f"---\n{head}---\n{apart}{instructions}\n"


def agent_yaml(spec: AgentSpec) -> str:
    """Return the file of an agent as YAML alone."""
    values = AgentSpec.model_dump(spec, mode="json", exclude_defaults=True, include=set(AgentSpec.model_fields))
    return _schema("agent", "../") + dump(values)


def trigger_values(trigger: TriggerView) -> dict[str, Any]:
    """Return the fields of a trigger that differ from their defaults, as a file has them."""
    given = TriggerCreate.model_validate(trigger.model_dump(include=set(TriggerCreate.model_fields)))
    return given.model_dump(mode="json", exclude_defaults=True)


def triggers_yaml(triggers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the file of triggers, by their keys."""
    return _schema("triggers", "") + dump({key: dict(values) for key, values in triggers.items()})


def dump(values: Mapping[str, Any]) -> str:
    """Return a mapping as YAML, in its order."""
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100) if values else ""


def _schema(name: str, up: str) -> str:
    # Editors with a language server for YAML complete and check by it.
    return f"# yaml-language-server: $schema={up}{SCHEMAS}/{name}.json\n"
