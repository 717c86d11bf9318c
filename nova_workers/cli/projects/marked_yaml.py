"""YAML with the line of each value, for errors that say where they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from nova_workers.base.errors import InvalidInput

Place = tuple[str, ...]
"""The names and positions that lead to a value, such as ``("responsibilities", "0", "title")``."""


@dataclass(frozen=True, slots=True)
class MarkedYaml:
    """A document of YAML.

    Attributes:
        value: As JSON has it: times and words such as ``on`` stay texts.
        lines: The line of each key or item, from 1.
    """

    value: Any
    lines: Mapping[Place, int]

    def line_of(self, place: Place) -> int:
        """Return the line of a value, or of the nearest one around it that is in the document."""
        while place not in self.lines and place:
            place = place[:-1]
        return self.lines.get(place, 1)


class _Loader(yaml.SafeLoader):
    """Knows the words of JSON only: a time is a text, and so are ``yes`` and ``on``."""


_FastLoader: Any = type("_FastLoader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
"""The same with the parser in C, where PyYAML has it: a third of the time. Its errors say less."""


class JsonDumper(yaml.SafeDumper):
    """Writes what `read_yaml` reads as the same value: it quotes texts that either kind of YAML takes for others."""


_Loader.yaml_implicit_resolvers = {}
_FastLoader.yaml_implicit_resolvers = {}
for _tag, _form, _first in (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    for _each in (_Loader, _FastLoader, JsonDumper):
        _each.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_form})$"), [*_first.strip("\0"), ""]
        )


def read_yaml(text: str, *, file: str, first_line: int = 1) -> MarkedYaml:
    """Read a document.

    Args:
        text: The document.
        file: Named by errors.
        first_line: The line of its file in which it begins.

    Raises:
        InvalidInput: It is not YAML, a key is in a mapping twice or is not a text; with file and line.
    """
    try:
        try:
            return _read(_FastLoader(text), file, first_line)
        except yaml.YAMLError:
            return _read(_Loader(text), file, first_line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = first_line + (0 if mark is None else mark.line)
        raise InvalidInput(f"{file}:{line}: {_problem(error)}.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInput(f"{file}:{first_line}: it is not YAML: {error}.") from error


def _read(loader: Any, file: str, first_line: int) -> MarkedYaml:
    lines: dict[Place, int] = {}
    try:
        root = loader.get_single_node()
        if root is None:
            return MarkedYaml(None, lines)
        _mark(root, (), lines, file, first_line)
        return MarkedYaml(loader.construct_document(root), lines)
    finally:
        loader.dispose()


def _problem(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "it is not YAML"
    if "alias" in f"{problem} {error.context}":
        return f"{problem}; a text that begins with * needs quotes, such as '*/15 * * * *'"
    return problem


def _mark(node: yaml.Node, place: Place, lines: dict[Place, int], file: str, first_line: int) -> None:
    lines.setdefault(place, first_line + node.start_mark.line)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            line = first_line + key.start_mark.line
            name = str(key.value)
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                raise InvalidInput(f"{file}:{line}: a key is a text.")
            if name in seen:
                raise InvalidInput(f"{file}:{line}: {name!r} is in this mapping twice.")
            seen.add(name)
            lines[*place, name] = line
            _mark(value, (*place, name), lines, file, first_line)
    elif isinstance(node, yaml.SequenceNode):
        for at, item in enumerate(node.value):
            lines[*place, str(at)] = first_line + item.start_mark.line
            _mark(item, (*place, str(at)), lines, file, first_line)
