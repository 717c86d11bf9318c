"""Differences between two configurations, field by field, as lines of a unified diff."""

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

_CONTEXT_LINES = 3

LineKind = Literal["same", "added", "removed", "place"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a diff, without its mark; `place` says which lines follow."""

    kind: LineKind
    text: str


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """What changed in a field."""

    field: str
    lines: tuple[Line, ...]


def field_diffs(before: Mapping[str, object], after: Mapping[str, object]) -> list[FieldDiff]:
    """Return the fields that differ, in the order of `before`."""
    names = list(dict.fromkeys([*before, *after]))
    return [
        FieldDiff(name, tuple(_lines(before.get(name), after.get(name))))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _lines(before: object, after: object) -> Iterator[Line]:
    found = difflib.unified_diff(_text(before), _text(after), n=_CONTEXT_LINES, lineterm="")
    # The first two lines name files.
    for at, line in enumerate(found):
        if at < 2:
            continue
        match line[:1]:
            case "+":
                yield Line("added", line[1:])
            case "-":
                yield Line("removed", line[1:])
            case "@":
                yield Line("place", line.strip("@ "))
            case _:
                yield Line("same", line[1:])


def _text(value: object) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return value.splitlines()
    return json.dumps(value, indent=2, ensure_ascii=False).splitlines()
