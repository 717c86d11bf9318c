"""Which scopes roles have, and which endpoint needs which: the tables of docs/scopes.md, as the application has them.

Write them anew with ``python -m tests.support.data.scope_table``.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, Final, get_args

from fastapi import FastAPI
from fastapi.routing import APIRoute

from nova_workers.contracts.authors.rights import AuthorScope
from nova_workers.contracts.http.scopes import ROLES, Scope, with_included
from tests.support.data.documents import ROOT
from tests.support.data.idle_api import idle_api

PAGE: Final = ROOT / "docs" / "scopes.md"
_ROLES_HEAD: Final = f"| scope | {' | '.join(f'`{role}`' for role in ROLES)} |\n| --- |{' --- |' * len(ROLES)}\n"
_HEAD: Final = "| endpoint | scope | depending on the request | other tenants |\n| --- | --- | --- | --- |\n"
_SCOPES: Final = frozenset(get_args(Scope))
_BY_FIELD: Final = "by field"


def role_table() -> str:
    """Return the rows of all scopes, with the roles that have each."""
    having = {role: with_included(scopes) for role, scopes in ROLES.items()}
    rows = (
        f"| `{scope}` | {' | '.join('yes' if scope in scopes else '-' for scopes in having.values())} |\n"
        for scope in get_args(Scope)
    )
    return _ROLES_HEAD + "".join(rows)


def scope_table() -> str:
    """Return the rows of all endpoints, in the order of the application's routes."""
    app = idle_api()
    operations = app.openapi()["paths"]
    return _HEAD + "".join(_rows(app, operations))


def table_of(page: str) -> str:
    """Return the table of endpoints that a page has.

    Raises:
        ValueError: It has none.
    """
    return _table_of(page, _HEAD)


def role_table_of(page: str) -> str:
    """Return the table of roles that a page has.

    Raises:
        ValueError: It has none.
    """
    return _table_of(page, _ROLES_HEAD)


def _table_of(page: str, head: str) -> str:
    start = page.index(head)
    return page[start:].partition("\n\n")[0].rstrip("\n") + "\n"


def _rows(app: FastAPI, operations: dict[str, Any]) -> Iterator[str]:
    for route in app.routes:
        if not isinstance(route, APIRoute):
            continue
        for method in sorted(route.methods or ()):
            operation = operations.get(route.path, {}).get(method.lower(), {})
            needed = [scope for need in operation.get("security", ()) for scope in need["HTTPBearer"]]
            further = [scope for scope in _compared(route) if scope not in needed]
            across = "with `operator`" if "operator" in {*needed, *further} else "never"
            cells = [_spans(needed) or "any key", _spans(further) or "-", across]
            if not route.path.startswith("/v1/"):
                cells = ["no key", "-", "-"]
            yield f"| `{method} {route.path}` | {' | '.join(cells)} |\n"


def _spans(scopes: list[str]) -> str:
    return ", ".join(scope if scope == _BY_FIELD else f"`{scope}`" for scope in scopes)


def _compared(route: APIRoute) -> list[str]:
    """Return the scopes that the code of a route compares with those of the caller."""
    module = inspect.getmodule(route.endpoint)
    assert module is not None
    return sorted(set(_compared_by(route.endpoint.__name__, module, set())))


@cache
def _functions(module: ModuleType) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    parsed = ast.parse(inspect.getsource(module))
    return {node.name: node for node in parsed.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _compared_by(name: str, module: ModuleType, seen: set[str]) -> Iterator[str]:
    """Yield the scopes that a function compares, and those that functions of its module do for it."""
    functions = _functions(module)
    if name in seen or name not in functions:
        return
    seen.add(name)
    for node in ast.walk(functions[name]):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "caller.scopes":
            yield _BY_FIELD
        elif isinstance(node, ast.Attribute) and node.attr == "author" and ast.unparse(node.value).endswith("caller"):
            yield from get_args(AuthorScope)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("caller.need", "caller.may"):
            words = {str(part.value) for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)}
            named = words & _SCOPES
            yield from named or {_BY_FIELD}
        elif isinstance(node, ast.Name):
            yield from _compared_by(node.id, module, seen)


if __name__ == "__main__":
    _text = PAGE.read_text("utf-8")
    _text = _text.replace(role_table_of(_text), role_table())
    PAGE.write_text(_text.replace(table_of(_text), scope_table()), "utf-8")
