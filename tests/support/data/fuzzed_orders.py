"""Orders for property tests: values of the contract's JSON schema, then damaged in a few places."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from hypothesis import strategies as st

from nova_workers.contracts.orders.definitions import json_schema

MARK = "Zq7 canary"
"""A part of every text and name in the free content of an order; no error may contain it."""

_texts = st.text(max_size=20).map(lambda text: f"{text}{MARK}{text}")
_scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
_json = st.recursive(
    _scalars | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)


def _of_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return _of_schema(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "properties" in schema:
        return _object(schema, definitions)
    if schema.get("type") == "array":
        return st.lists(_of_schema(schema["items"], definitions), max_size=3)
    literals = [schema["const"]] if "const" in schema else schema.get("enum")
    return _scalar(schema) if literals is None else st.sampled_from(literals)


def _scalar(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    match schema.get("type"):
        case "object":
            return st.dictionaries(_texts, _json, max_size=3)
        case "string":
            return st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)
        case "integer":
            return st.integers(schema.get("minimum", -9), schema.get("maximum", 9))
        case "number":
            return st.floats(schema.get("exclusiveMinimum", 0), schema.get("maximum", 9), exclude_min=True)
        case "boolean":
            return st.booleans()
        case _:
            return _json


def _object(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    fields = {name: _of_schema(field, definitions) for name, field in schema["properties"].items()}
    required = schema.get("required", ())
    return st.fixed_dictionaries(
        {name: field for name, field in fields.items() if name in required},
        optional={name: field for name, field in fields.items() if name not in required},
    )


@cache
def _orders() -> st.SearchStrategy[dict[str, Any]]:
    definitions = json_schema()["$defs"]
    return _of_schema(definitions["AiWorkOrderV1"], definitions)


@st.composite
def damaged_orders(draw: st.DrawFn) -> Any:
    """Draw an order of the schema with up to three damages: a field replaced, removed, or added."""
    order = deepcopy(draw(_orders()))
    for _ in range(draw(st.integers(0, 3))):
        place: Any = order
        while (inner := [value for value in place.values() if isinstance(value, dict)]) and draw(st.booleans()):
            place = draw(st.sampled_from(inner))
        names = sorted(place)
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace" if names:
                place[draw(st.sampled_from(names))] = draw(_json)
            case "remove" if names:
                del place[draw(st.sampled_from(names))]
            case _:
                place[draw(_texts.map(lambda text: f"{text} "))] = draw(_json)
    return order
