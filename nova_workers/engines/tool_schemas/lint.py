"""Whether a provider takes a schema."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from nova_workers.contracts.content import JsonObject
from nova_workers.engines.tool_schemas.limits import PLAIN_KEYWORDS, ToolLimits

PROPERTY_KEY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""What providers take as a key at the top."""
NOT_AT_ROOT: Final = ("oneOf", "anyOf", "allOf", "enum", "not", "const", "if", "then", "else", "$ref")
"""Keywords that providers refuse at the top, or that need one that they refuse."""

_IN_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_IN_MAPS = ("properties", "patternProperties", "dependentSchemas")
_SINGLE = (
    *("items", "additionalProperties", "not", "if", "then", "else", "propertyNames", "contains", "contentSchema"),
    *("unevaluatedItems", "unevaluatedProperties"),
)


def schema_problem(schema: JsonObject, limits: ToolLimits) -> str | None:
    """Return why a provider would refuse a tool with this schema; None if it takes it."""
    if schema.get("type") != "object":
        return "the type at the top is not 'object'"
    found = next((keyword for keyword in NOT_AT_ROOT if keyword in schema), None)
    if found is not None:
        return f"it has {found!r} at the top"
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return "it has no properties"
    key = next((key for key in properties if not PROPERTY_KEY.fullmatch(key)), None)
    if key is not None:
        return f"the property {key!r} has other characters than letters, digits, '_', '.' and '-', or more than 64"
    if len(orjson.dumps(schema)) > limits.max_schema_bytes:
        return f"it is longer than {limits.max_schema_bytes} bytes"
    return _nested_problem(schema, limits)


def _nested_problem(schema: JsonObject, limits: ToolLimits) -> str | None:
    level: list[Any] = [schema]
    for _ in range(limits.max_depth + 1):
        following: list[Any] = []
        for node in level:
            if not isinstance(node, Mapping):
                if limits.plain:
                    return "it has a schema that is no object"
                continue
            kinds = node.get("type")
            if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and "items" not in node:
                return "it has an array without 'items'"
            if limits.plain and (not node.keys() <= PLAIN_KEYWORDS or not isinstance(kinds, str | None)):
                return "it has keywords that the provider does not know"
            following += subschemas(node)
        level = following
    return f"it nests deeper than {limits.max_depth} levels" if level else None


def subschemas(node: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas within a schema."""
    for keyword in _IN_LISTS:
        yield from node.get(keyword, ())
    for keyword in _IN_MAPS:
        yield from node.get(keyword, {}).values()
    for keyword in _SINGLE:
        if keyword in node:
            yield node[keyword]
