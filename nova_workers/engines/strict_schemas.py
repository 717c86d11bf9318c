"""Decides whether the provider's strict mode can express an output schema.

Strict mode guarantees that the answer matches, but takes only a part of JSON Schema: each object lists all its
properties as required and allows no others. Another schema is sent without strict mode. The turn validates the answer
in each case.
"""

from collections.abc import Iterable, Mapping
from typing import Any

_REFUSED = frozenset(
    {"allOf", "not", "if", "then", "else", "oneOf", "patternProperties", "dependentRequired", "dependentSchemas"}
    | {"propertyNames", "minProperties", "maxProperties", "unevaluatedProperties", "contains", "prefixItems"}
)


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Return whether strict mode takes the schema. It wants an object at the top."""
    return schema.get("type") == "object" and _fits(schema)


def _fits(node: Any) -> bool:
    if not isinstance(node, Mapping):
        return False
    if _REFUSED & node.keys():
        return False
    if node.get("type") == "object" or "properties" in node:
        properties = node.get("properties")
        if not isinstance(properties, Mapping) or node.get("additionalProperties") is not False:
            return False
        if set(node.get("required", ())) != set(properties):
            return False
    return all(map(_fits, _inner(node)))


def _inner(node: Mapping[str, Any]) -> Iterable[Any]:
    for key in ("properties", "$defs", "definitions"):
        yield from node.get(key, {}).values()
    yield from node.get("anyOf", ())
    if "items" in node:
        yield node["items"]
