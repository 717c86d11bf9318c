"""TypeScript declarations of JSON schemas, as far as the contract of work orders uses them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

_SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_INDENT = "  "


def declarations(definitions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one ``export type`` for each definition, in their order."""
    return "".join(_declaration(name, schema) for name, schema in definitions.items())


def _declaration(name: str, schema: Mapping[str, Any]) -> str:
    return f"\n{_comment(schema, '')}export type {name} = {_type(schema)};\n"


def _type(schema: Mapping[str, Any], indent: str = "") -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(dict.fromkeys(_type(member, indent) for member in schema[union]))
    literals = [schema["const"]] if "const" in schema else schema.get("enum")
    if literals is not None:
        return " | ".join(json.dumps(value) for value in literals)
    return _shape(schema, indent)


def _shape(schema: Mapping[str, Any], indent: str) -> str:
    kind = schema.get("type")
    if kind == "array":
        return f"Array<{_type(schema.get('items', {}), indent)}>"
    if kind == "object":
        return _object(schema, indent) if "properties" in schema else f"Record<string, {_values(schema, indent)}>"
    return "unknown" if kind is None else _SIMPLE[kind]


def _values(schema: Mapping[str, Any], indent: str) -> str:
    values = schema.get("additionalProperties")
    return _type(values, indent) if isinstance(values, dict) else "unknown"


def _object(schema: Mapping[str, Any], indent: str) -> str:
    inner = indent + _INDENT
    return "\n".join(["{", *_members(schema, inner), f"{indent}}}"])


def _members(schema: Mapping[str, Any], indent: str) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        mark = "" if name in required else "?"
        yield f"{_comment(field, indent)}{indent}{name}{mark}: {_type(field, indent)};"
    if schema.get("additionalProperties") is True:
        yield f"{indent}[key: string]: unknown;"


def _comment(schema: Mapping[str, Any], indent: str) -> str:
    text = " ".join(schema.get("description", "").split())
    return f"{indent}/** {text} */\n" if text else ""
