"""Reads docstrings in Google's style."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Final

_SECTIONS: Final = frozenset(
    {"args", "arguments", "parameters", "returns", "return", "yields", "raises", "example", "examples", "attributes"}
)
_PARAMETERS: Final = frozenset({"args", "arguments", "parameters"})
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


@dataclass(frozen=True, slots=True)
class Docstring:
    """A function's description, without its sections, and those of its parameters by name, each in one line."""

    description: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Docstring:
    """Return the descriptions in a docstring: of the function and of each parameter."""
    description: list[str] = []
    parameters: dict[str, list[str]] = {}
    section: str | None = None
    entry_indent: int | None = None
    entry: list[str] = []
    for line in inspect.cleandoc(text or "").splitlines():
        heading = line.rstrip().removesuffix(":").lower()
        if line.rstrip().endswith(":") and heading in _SECTIONS:
            section, entry_indent, entry = heading, None, []
        elif section is None:
            description.append(line)
        elif section in _PARAMETERS and line.strip():
            indent = len(line) - len(line.lstrip())
            entry_indent = indent if entry_indent is None else entry_indent
            found = _ENTRY.fullmatch(line.strip()) if indent <= entry_indent else None
            if found is None:
                entry.append(line.strip())
            else:
                entry = parameters.setdefault(found[1], [])
                entry.append(found[2])
    return Docstring("\n".join(description).strip(), {name: " ".join(parts) for name, parts in parameters.items()})
