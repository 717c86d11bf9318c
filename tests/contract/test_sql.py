"""SQL: parameters have names, in tests as well, and every call passes exactly the values that its statement names."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from nova_workers.ledger.named_sql import compile_statement

ROOT = Path(__file__).parents[2]
SOURCES = [path for room in ("nova_workers", "api", "beat") for path in sorted((ROOT / room).rglob("*.py"))]
# What compares the fleet with a server, or with a record, that has none of its code, speaks to asyncpg itself.
APART = {"node_modules", "floor", "checker", "runner", "soak"}
TESTS = [
    path
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if path.name != "test_named_sql.py" and not APART.intersection(path.parts)
]
SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|WHERE|VALUES)\b")
PARAMETER = re.compile(r"\$[1-9]")
METHODS = {"fetch", "fetchrow", "fetchval", "execute", "rows"}
CALL = re.compile(rf"\.({'|'.join(sorted(METHODS))})\(\s*[A-Z_]")
"""What every file with such a call has: parsing each file of the source takes a second."""


def _docstrings(tree: ast.Module) -> set[ast.AST]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, owners))
    return {body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)}


def _positional(path: Path) -> Iterator[str]:
    source = path.read_text()
    if not PARAMETER.search(source):
        return
    tree = ast.parse(source)
    docstrings = _docstrings(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if node not in docstrings:
                pass
            case ast.JoinedStr(values=parts):
                text = "".join(
                    part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )
            case _:
                continue
        found = PARAMETER.search(text)
        if found and (path not in TESTS or SQL.search(text)):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {found[0]}"


def _calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls whose first argument is a constant of their module, with that constant's name."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if CALL.search(text) else ():
        match node:
            case ast.Call(func=ast.Attribute(attr=method), args=[ast.Name(id=name), *_]) if method in METHODS:
                if name.isupper():
                    yield node, name
            case _:
                pass


def test_the_ledger_takes_connections_and_leaves_transactions_to_its_callers() -> None:
    room, homes = ROOT / "nova_workers" / "ledger", ROOT / "nova_workers" / "domain"
    parts_of_database = {room / f"{name}.py" for name in ("database", "connections", "sessions", "work", "persist")}
    ledger = {*room.rglob("*.py"), *homes.glob("*/sql.py"), *homes.glob("*/sql/**/*.py")}
    assert parts_of_database <= ledger
    assert len(ledger) > 100
    ledger -= parts_of_database
    owners = re.compile(r"import .*\bDatabase\b|\.(transaction|snapshot|connection)\(")
    assert [str(path.relative_to(ROOT)) for path in sorted(ledger) if owners.search(path.read_text())] == []


def test_no_statement_has_positional_parameters() -> None:
    assert [problem for path in (*SOURCES, *TESTS) for problem in _positional(path)] == []


def test_a_call_passes_the_values_that_its_statement_names() -> None:
    wrong: list[str] = []
    for path in SOURCES:
        for call, constant in _calls(path):
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            where = f"{path.relative_to(ROOT)}:{call.lineno}: {constant}"
            if len(call.args) != 1:
                wrong.append(f"{where}: a value without a name")
            _, names = compile_statement(getattr(module, constant))
            given = {keyword.arg for keyword in call.keywords if keyword.arg not in {None, "at_once"}}
            if unknown := given - set(names):
                wrong.append(f"{where}: no parameter {unknown}")
            if all(keyword.arg for keyword in call.keywords) and (missing := set(names) - given):
                wrong.append(f"{where}: no value for {missing}")
    assert wrong == []


def _read_from_rows(path: Path) -> Iterator[tuple[str, type[BaseModel], set[str]]]:
    """Yield each model that a file makes of a row's columns, with the fields that it gives beside them."""
    text = path.read_text()
    if "(**row" not in text:
        return
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            spread = [each.value for each in node.keywords if each.arg is None]
            model = getattr(module, node.func.id, None)
            # What another mapping gives is not known here.
            if len(spread) == 1 and isinstance(model, type) and issubclass(model, BaseModel):
                yield text, model, {each.arg for each in node.keywords if each.arg is not None}


def test_a_field_with_a_default_has_a_column_where_rows_become_values() -> None:
    """A row without the column would show the default."""
    read = [
        (path.relative_to(ROOT).as_posix(), *each)
        for path in SOURCES
        if "domain" in path.parts
        for each in _read_from_rows(path)
    ]
    assert len(read) > 20
    turns = (ROOT / "models" / "turns.py").read_text()
    missing = [
        f"{path}: {model.__name__}.{name}"
        for path, text, model, given in read
        for name in model.model_fields.keys() - given
        # As a column: neither a parameter, nor compared or given by name.
        if not re.search(rf"(?<![:\w]){name}\b(?!\s*=)", text + (turns if "SELECT u.*" in text else ""))
    ]
    assert missing == []
