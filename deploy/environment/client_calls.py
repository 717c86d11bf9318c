"""The async calls of the client, written from their template and the operations of the OpenAPI document."""

import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from nova_workers import contracts
from nova_workers.base import vocabulary
from nova_workers.base.config import Settings
from nova_workers.base.release import part

_Schema = Mapping[str, Any]

_NAMES = {"from": "since", "to": "until", "q": "query"}
"""Query parameters that have another name in Python."""
_LAST = ("limit", "cursor")
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_WAIT = "timeout_s"
"""The query of requests that wait. It is not sent: the server waits for its limit, and the client for longer."""
_WAIT_S = 660.0


def call_sources(template: Path) -> dict[str, str]:
    """Return the sources of the modules that a template declares, by name, not yet formatted.

    Raises:
        ValueError: The template and the document differ: an operation that the other does not have, or has twice.
    """
    declared = tomllib.loads(template.read_text("utf-8"))
    by_hand: list[str] = declared.pop("by_hand")
    operations = _operations()
    used = [*by_hand, *(call["of"] for module in declared.values() for call in _calls(module))]
    if wrong := {name for name in {*used, *operations} if (used.count(name), name in operations) != (1, True)}:
        raise ValueError(f"{template.name} must name each operation of the API once, and no other: {sorted(wrong)}")
    return {name: _module(module, operations) for name, module in declared.items()}


def _calls(module: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for of_class in module.values():
        if isinstance(of_class, dict):
            yield from (call for call in of_class.values() if isinstance(call, dict))


@dataclass(frozen=True)
class _Operation:
    """An operation of the document."""

    method: str
    path: str
    id: str
    parameters: list[_Schema]
    body: _Schema | None
    answer: _Schema | None
    """The schema of the body of its answer."""
    headers: frozenset[str]


@cache
def _operations() -> Mapping[str, _Operation]:
    # The application is built and never started, so its addresses are never used.
    addresses = {"database_url": "postgresql://127.0.0.1/none", "redis_url": "redis://127.0.0.1"}
    document = part("api.app").build_app(Settings.model_validate(addresses)).openapi()
    schemas = document["components"]["schemas"]
    operations = (
        _operation(method, path, operation, schemas)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    )
    return {operation.id: operation for operation in operations}


def _operation(method: str, path: str, operation: _Schema, schemas: _Schema) -> _Operation:
    parameters = operation.get("parameters", [])
    success = next(answer for status, answer in operation["responses"].items() if status < "300")
    body = _content(operation.get("requestBody", {}))
    return _Operation(
        method.upper(),
        path,
        operation["operationId"],
        [parameter for parameter in parameters if parameter["in"] != "header"],
        None if body is None else {**schemas.get(_name(body), {}), **body},
        _content(success),
        frozenset(each["name"].lower() for each in parameters if each["in"] == "header"),
    )


def _content(message: _Schema) -> _Schema | None:
    return next((content.get("schema") for content in message.get("content", {}).values()), None)


def _name(schema: _Schema) -> str:
    return schema.get("$ref", "").rpartition("/")[2]


@dataclass
class _Imports:
    """The names of contracts that a module uses, each with the module that has it."""

    lines: set[str] = field(default_factory=set)

    def model(self, name: str) -> str:
        """Return an expression for the model of a schema's name."""
        if of_page := re.fullmatch(r"Page_(\w+)_", name):
            return f"{self.model('Page')}[{self.model(of_page[1])}]"
        homes = {vars(module)[name].__module__ for module in _CONTRACTS if isinstance(vars(module).get(name), type)}
        return self._imported(name, homes)

    def choice(self, values: list[str]) -> str:
        """Return the name of the type of these values."""
        found = {
            (name, module.__name__)
            for module in (vocabulary, *_CONTRACTS)
            for name, value in vars(module).items()
            if sorted(_values(value)) == sorted(values)
            and re.search(rf"^{name}\b.* = ", inspect.getsource(module), re.M)
        }
        names = {name for name, _ in found}
        return self._imported("|".join(sorted(names)), {home for _, home in found})

    def _imported(self, name: str, homes: set[str]) -> str:
        if len(homes) != 1:
            raise ValueError(f"{name!r} must be in one module of contracts, and is in {sorted(homes)}")
        self.lines.add(f"from {homes.pop()} import {name}")
        return name


def _values(type_: Any) -> list[str]:
    """Return the strings of a `Literal`, also of nested ones."""
    return [each for each in get_args(type_) if isinstance(each, str)]


_CONTRACTS: list[ModuleType] = [
    import_module(found.name) for found in pkgutil.walk_packages(contracts.__path__, f"{contracts.__name__}.")
]


def _module(module: Mapping[str, Any], operations: Mapping[str, _Operation]) -> str:
    imports, classes = _Imports(), list[str]()
    for name, of_class in module.items():
        if not isinstance(of_class, dict):
            continue
        methods = [
            _method(method, call, operations[call["of"]], imports)
            for method, call in of_class.items()
            if isinstance(call, dict)
        ]
        start = "def __init__(self, transport: Transport) -> None:\n    self._transport = transport\n"
        body = "\n".join([_docstring(of_class["doc"]), start, *methods])
        classes.append(f"class {name}:\n{_indented(body)}")
    return "\n".join([_docstring(module["doc"]), _ALWAYS, *sorted(imports.lines), *classes])


_ALWAYS = """
from collections.abc import Sequence
from datetime import datetime
from nova_workers.client.headers import idempotency, if_match
from nova_workers.client.transport import Transport
"""
"""Imports of all modules, of which the formatter removes what one does not use."""


def _method(name: str, call: Mapping[str, Any], operation: _Operation, imports: _Imports) -> str:
    by_place, by_name, sent = ["self"], list[str](), list[str]()
    queries: dict[str, str] = {}
    for parameter in sorted(operation.parameters, key=_place):
        given = parameter["name"]
        if parameter["in"] == "path":
            by_place.append(f"{given}: {_PLAIN[parameter['schema']['type']]}")
        elif given != _WAIT:
            parameters = by_place if given in call.get("positional", ()) else by_name
            parameters.append(_query(parameter, queries, imports))
    if operation.body is not None:
        parameters, value = _body(call, operation.body, imports)
        by_place += parameters
        sent.append(f"body={value}")
    if queries:
        sent.append("params={" + ", ".join(f'"{query}": {value}' for query, value in queries.items()) + "}")
    parameters, options = _options(call, operation)
    by_name += parameters
    signature = ", ".join([*by_place, *(["*", *by_name] if by_name else [])])
    address = f'"{operation.method}"', f'{"f" if "{" in operation.path else ""}"{operation.path}"', *sent, *options
    if operation.answer is None:
        answer, code = "None", f"await self._transport.send({', '.join(address)})"
    elif operation.answer.get("format") == "binary":
        answer, code = "bytes", f"return (await self._transport.send({', '.join(address)})).content"
    else:
        answer = imports.model(_name(operation.answer))
        code = f"return await self._transport.fetch({', '.join([answer, *address])})"
    return f"async def {name}({signature}) -> {answer}:\n{_indented(_docstring(call['doc']) + code)}\n"


def _options(call: Mapping[str, Any], operation: _Operation) -> tuple[list[str], list[str]]:
    """Return the parameters of a call that are no part of its address or body, and what is sent of them."""
    parameters, sent = list[str](), list[str]()
    if "if-match" in operation.headers:
        parameters.append("if_version: int | None = None")
        sent.append("headers=if_match(if_version)")
    if "idempotency-key" in operation.headers:
        key = call.get("key", "idempotency_key")
        parameters.append(f"{key}: str" if "key" in call else f"{key}: str | None = None")
        sent.append(f"headers=idempotency({key})")
    if any(parameter["name"] == _WAIT for parameter in operation.parameters):
        parameters.append(f"timeout_s: float = {_WAIT_S}")
        sent.append("timeout_s=timeout_s")
    sent += [f"{option}={call[option]}" for option in ("timeout_s", "repeatable") if option in call]
    return parameters, sent


def _place(parameter: _Schema) -> int:
    """Return where a parameter comes in a method: limit and cursor last, the others as in the document."""
    return _LAST.index(parameter["name"]) + 1 if parameter["name"] in _LAST else 0


def _query(parameter: _Schema, queries: dict[str, str], imports: _Imports) -> str:
    """Return a query parameter of a method, and note what is sent of it."""
    name: str = _NAMES.get(parameter["name"]) or parameter["name"]
    schema = parameter["schema"]
    queries[parameter["name"]] = name
    type_ = _type(schema, imports)
    default = schema.get("default")
    if parameter.get("required"):
        return f"{name}: {type_}"
    if isinstance(default, str):
        return f'{name}: {type_} = "{default}"'
    if isinstance(default, bool):
        # What the server takes by itself is not sent.
        queries[parameter["name"]] = f"None if {name} else False" if default else f"{name} or None"
        return f"{name}: {type_} = {default}"
    return f"{name}: {type_} | None = None"


def _type(schema: _Schema, imports: _Imports) -> str:
    """Return the annotation of a query parameter or a field, without None."""
    schema = next((each for each in schema.get("anyOf", ()) if each.get("type") != "null"), schema)
    if "enum" in schema:
        return imports.choice(schema["enum"])
    if schema["type"] == "array":
        item = _type(schema["items"], imports)
        return f"{item} | Sequence[{item}]"
    return "datetime" if schema.get("format") == "date-time" else _PLAIN[schema["type"]]


def _body(call: Mapping[str, Any], schema: _Schema, imports: _Imports) -> tuple[list[str], str]:
    """Return the parameters that stand for a body, and the expression that makes it of them."""
    model = imports.model(_name(schema))
    if "fields" not in call:
        name: str = call["body"]
        if call.get("optional"):
            return [f"{name}: {model} | None = None"], f"{name} or {model}()"
        return [f"{name}: {model}"], name
    parameters = [
        f"{name}: {_type(schema['properties'][name], imports)}"
        + ("" if name in schema.get("required", ()) else " | None = None")
        for name in call["fields"]
    ]
    return parameters, f"{model}({', '.join(f'{name}={name}' for name in call['fields'])})"


def _docstring(text: str) -> str:
    text = text.strip("\n")
    return f'"""{text}\n"""\n' if "\n" in text else f'"""{text}"""\n'


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines()) + "\n"
