"""The types of a schema's values, as they are said or meant."""

from collections.abc import Mapping
from typing import Any, Final

_TYPES: Final[Mapping[str, str]] = {
    **{name: name for name in ("string", "number", "integer", "boolean", "array", "object", "null")},
    **dict.fromkeys(("str", "text"), "string"),
    **dict.fromkeys(("float", "double"), "number"),
    **dict.fromkeys(("int", "long"), "integer"),
    "bool": "boolean",
    **dict.fromkeys(("list", "tuple"), "array"),
    **dict.fromkeys(("dict", "map"), "object"),
    **dict.fromkeys(("none", "nil"), "null"),
}
"""Types by what servers write, in lower case."""
_MEANT: Final[Mapping[str, tuple[str, ...]]] = {
    "object": ("properties", "required", "additionalProperties", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("pattern", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that speak of one type only."""
_COMBINED: Final = ("anyOf", "oneOf", "allOf", "not", "if")


def kinds_of(node: Mapping[str, Any]) -> list[str]:
    """Return the types of a schema's values; none if they may be any."""
    given = node.get("type")
    names: list[Any] = given if isinstance(given, list) else [given]
    found = [_TYPES.get(name.lower()) if isinstance(name, str) else None for name in names]
    kinds = list(dict.fromkeys(kind for kind in found if kind is not None)) or _meant(node)
    nullable = node.get("nullable") is True or (isinstance(given, list) and None in given)
    return [*kinds, "null"] if nullable and kinds and "null" not in kinds else kinds


def _meant(node: Mapping[str, Any]) -> list[str]:
    if any(keyword in node for keyword in _COMBINED):
        return []
    for kind, keywords in _MEANT.items():
        if any(keyword in node for keyword in keywords):
            return [kind]
    values = node.get("enum")
    if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        return ["string"]
    return ["string"] if isinstance(node.get("const"), str) else []
