"""The statements of the homes as a Markdown page: what each writes and reads, and what calls it.

``python docs/site/statement_reference.py`` prints it.
"""

import ast
import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from models.tables import metadata  # noqa: E402 - found by the line above

_ROOMS = ("nova_workers", "api", "beat")
_HOMES = "nova_workers.domain."
_HEAD = """\
# Statements

Every SQL statement of the homes, made from the source: the tables that it writes, those that it only reads, the public
functions of its module that execute it, and the modules that call them. The comment above a statement says what it
guards; [the run protocol](../run-protocol.md) says which statements make up a transition.
"""

_SQL = re.compile(r"\bsql\b")
_BEGINS = re.compile(r"[\s(]*(?:WITH|SELECT|INSERT|UPDATE|DELETE|LOCK)\b")
_WRITTEN = re.compile(
    r"(?:\bINSERT\s+INTO|(?<!FOR )(?<!FOR NO KEY )(?<!DO )\bUPDATE|\bDELETE\s+FROM)\s+(?:ONLY\s+)?(\w+)"
)
_NAMED = re.compile(r"\b(?:FROM|JOIN|USING|INTO|UPDATE|TABLE)\s+(?:ONLY\s+)?(\w+)")
_LISTED = re.compile(r"\bFROM\s+\w+(?:\s+\w+)?(?:\s*,\s*\w+(?:\s+\w+)?)+")


class Statement(NamedTuple):
    """A statement of a home.

    Attributes:
        module: Where it is.
        name: Its constant.
        writes: Tables.
        reads: Tables that it does not write.
        functions: Public functions and classes of the module that execute it.
        callers: Other modules that use these or the statement.
    """

    module: str
    name: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    functions: tuple[str, ...]
    callers: tuple[str, ...]


class _Use(NamedTuple):
    """A definition at the top level of a module that uses a name."""

    module: str
    name: str
    is_function: bool


def statements() -> list[Statement]:
    """Return the statements of all homes, by module."""
    uses: dict[str, set[_Use]] = {}
    constants: dict[str, list[str]] = {}
    for module, tree in _trees():
        known = _imported(tree) | {name: f"{module}.{name}" for name, _ in _definitions(tree)}
        for name, node in _definitions(tree):
            use = _Use(module, name, not isinstance(node, ast.Assign | ast.AnnAssign))
            for used in _used(node, known) - {known[name]}:
                uses.setdefault(used, set()).add(use)
            if not use.is_function and module.startswith(_HOMES) and ".sql" in module:
                constants.setdefault(module, []).append(name)
    return [
        statement
        for module, names in constants.items()
        for name in names
        if (text := _text(getattr(importlib.import_module(module), name))) is not None
        if (statement := _statement(uses, module, name, text)) is not None
    ]


def page(listed: Iterable[Statement]) -> str:
    """Return the page of statements: a table for each home."""
    homes: dict[str, list[str]] = {}
    for each in listed:
        home, _, rest = each.module.removeprefix(_HOMES).partition(".")
        cells = (
            [f"{rest}.{each.name}"],
            each.writes,
            each.reads,
            each.functions,
            [caller.removeprefix(_HOMES).removeprefix("nova_workers.") for caller in each.callers],
        )
        homes.setdefault(home, []).append(
            f"| {' | '.join(', '.join(f'`{part}`' for part in cell) or '-' for cell in cells)} |"
        )
    head = ("| statement | writes | reads | executed by | called by |", "| --- | --- | --- | --- | --- |")
    return "\n".join((_HEAD, *("\n".join((f"## {home}\n", *head, *rows, "")) for home, rows in homes.items())))


def _trees() -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules with statements, and those that may use them."""
    for room in _ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text("utf-8")
            if _SQL.search(text) or "sql" in path.as_posix():
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), ast.parse(text)


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node
            case _:
                pass


def _imported(tree: ast.Module) -> dict[str, str]:
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _used(node: ast.AST, known: Mapping[str, str]) -> set[str]:
    """Return the full names that a node uses, also as attributes of imported modules."""
    used: set[str] = set()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) if name in known:
                used.add(known[name])
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in known:
                used.add(f"{known[name]}.{attribute}")
            case _:
                pass
    return used


def _text(value: object) -> str | None:
    """Return the SQL of a constant; None if it has none that begins as a statement does."""
    texts = list(_strings(value))
    return "\n".join(texts) if any(_BEGINS.match(text) for text in texts) else None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for each in value.values() for text in _strings(each))
    elif isinstance(value, tuple | list):
        yield from (text for each in value for text in _strings(each))
    elif is_dataclass(value):
        yield from (text for each in fields(value) for text in _strings(getattr(value, each.name)))


def _statement(uses: Mapping[str, set[_Use]], module: str, name: str, text: str) -> Statement | None:
    """Return the statement of a constant; None if it is only a part of others."""
    functions = set(_public(uses, module, name, set()))
    entries = {f"{module}.{name}", *(f"{module}.{function}" for function in functions)}
    callers = {use.module for entry in entries for use in uses.get(entry, ()) if use.module != module}
    if not functions and not callers and f"{module}.{name}" in uses:
        return None
    written = set(_WRITTEN.findall(text)) & metadata.tables.keys()
    listed = re.findall(r"\w+", " ".join(_LISTED.findall(text)))
    read = {*_NAMED.findall(text), *listed} & metadata.tables.keys() - written
    return Statement(module, name, *(tuple(sorted(each)) for each in (written, read, functions, callers)))


def _public(uses: Mapping[str, set[_Use]], module: str, name: str, seen: set[str]) -> Iterator[str]:
    """Yield the public functions of a module that use one of its names, themselves or by private ones."""
    for use in uses.get(f"{module}.{name}", ()):
        if use.module == module and use.is_function and use.name not in seen:
            seen.add(use.name)
            if use.name.startswith("_"):
                yield from _public(uses, module, use.name, seen)
            else:
                yield use.name


if __name__ == "__main__":
    print(page(statements()))  # noqa: T201 - its output
