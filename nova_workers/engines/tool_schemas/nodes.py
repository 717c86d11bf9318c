"""Rebuilds a schema from what is sound in it: known keywords, with values of the right form."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from nova_workers.contracts.content import JsonObject
from nova_workers.engines.tool_schemas.kinds import kinds_of
from nova_workers.engines.tool_schemas.limits import PLAIN_KEYWORDS
from nova_workers.engines.tool_schemas.values import NO_VALUE, READERS, compiles
from nova_workers.engines.tool_schemas.words import as_json, explain

_MAX_NODES: Final = 5_000
"""The limit of a rebuilt schema: references to references can make a small schema as large as they like."""
_MAX_REFERENCES: Final = 32
"""The limit of references that lead to another."""
_MAX_INDEX_CHARS: Final = 5
_ANY_PLAIN: Final = [{"type": kind} for kind in ("string", "number", "boolean", "object")]

_SINGLE: Final = frozenset(
    {"not", "if", "then", "else", "propertyNames", "contains", "contentSchema"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_ANNOTATIONS: Final = frozenset({"title", "examples", "default", "deprecated", "readOnly", "writeOnly", "format"})
_OF_OBJECTS: Final = ("properties", "required")
_OF_ARRAYS: Final = ("items", "minItems", "maxItems")

_Inner = Callable[[Any], JsonObject]
"""Rebuilds a schema that is within the current one."""


class SchemaRebuilder:
    """Rebuilds one schema. References are replaced by what they refer to; where they are recursive, once."""

    def __init__(self, root: Any, *, max_depth: int, plain: bool, annotated: bool = True) -> None:
        """Take the schema.

        Args:
            root: The schema, which may be anything that JSON can express.
            max_depth: Schemas at this level are reduced to their type.
            plain: Whether to use only `PLAIN_KEYWORDS`, and one type for each value.
            annotated: Whether to keep what only explains.
        """
        self._root = root
        self._max_depth = max_depth
        self._plain = plain
        self._annotated = annotated
        self._nodes = 0

    def rebuild(self, node: Any, depth: int = 0, within: tuple[str, ...] = ()) -> JsonObject:
        """Return a schema that is valid.

        Args:
            node: The schema, or a part of it.
            depth: Its level.
            within: The references that led here.
        """
        self._nodes += 1
        if not isinstance(node, Mapping):
            return {"not": {}} if node is False and not self._plain else self._any()
        node, within = self._followed(node, within)
        kinds = kinds_of(node)
        if depth >= self._max_depth or self._nodes > _MAX_NODES:
            return self._completed({"type": kinds[0]} if len(kinds) == 1 else {}, kinds)

        def inner(part: Any) -> JsonObject:
            return self.rebuild(part, depth + 1, within)

        built: JsonObject = {}
        if kinds:
            built["type"] = kinds[0] if len(kinds) == 1 else kinds
        for keyword, value in node.items():
            if self._annotated or keyword not in _ANNOTATIONS:
                self._take(built, keyword, value, node, inner)
        self._add_required(built)
        return self._plainly(built, kinds) if self._plain else self._completed(built, kinds)

    def _followed(self, node: Mapping[str, Any], within: tuple[str, ...]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Return the node with what its reference refers to, beside which its own keywords hold."""
        for _ in range(_MAX_REFERENCES):
            ref = node.get("$ref")
            own = {key: value for key, value in node.items() if key != "$ref"}
            target = _part_of(self._root, ref) if isinstance(ref, str) and ref not in within else None
            if not isinstance(ref, str) or not isinstance(target, Mapping):
                return own, within
            node, within = {**target, **own}, (*within, ref)
        return {key: value for key, value in node.items() if key != "$ref"}, within

    def _take(self, built: JsonObject, keyword: str, value: Any, node: Mapping[str, Any], inner: _Inner) -> None:
        """Put a keyword into the schema that is built, unless its value makes no sense."""
        if keyword in READERS:
            read = READERS[keyword](value, node)
            if read is not NO_VALUE:
                built[keyword] = read
        elif keyword in _MAPS:
            self._take_map(built, keyword, value, inner)
        elif keyword in _LISTS and isinstance(value, list) and value:
            built[keyword] = [inner(part) for part in value]
        elif keyword in _SINGLE and isinstance(value, Mapping | bool):
            built[keyword] = inner(value)
        elif keyword == "items":
            self._take_items(built, value, node, inner)
        elif keyword == "additionalProperties" and isinstance(value, Mapping | bool):
            built[keyword] = value if isinstance(value, bool) else inner(value)

    def _take_map(self, built: JsonObject, keyword: str, value: Any, inner: _Inner) -> None:
        parts = _named(value)
        kept = {key: inner(part) for key, part in parts.items() if keyword != "patternProperties" or compiles(key)}
        if kept or (keyword == "properties" and isinstance(value, Mapping)):
            built[keyword] = kept

    def _take_items(self, built: JsonObject, value: Any, node: Mapping[str, Any], inner: _Inner) -> None:
        if isinstance(value, Mapping) or value is True:
            built["items"] = inner(value)
        elif isinstance(value, list) and value:
            # A list of the items' schemas, as it was written before draft 2020-12.
            built["prefixItems"] = [inner(part) for part in value]
            rest = node.get("additionalItems")
            built["items"] = inner(rest) if isinstance(rest, Mapping) else self._any()

    def _add_required(self, built: JsonObject) -> None:
        """Add properties for names that are required and have none."""
        if "required" in built:
            properties = built.setdefault("properties", {})
            for name in built["required"]:
                properties.setdefault(name, self._any())

    def _completed(self, built: JsonObject, kinds: Sequence[str]) -> JsonObject:
        if "array" in kinds and "items" not in built:
            built["items"] = self._any()
        return built if built or not self._plain else self._any()

    def _any(self) -> JsonObject:
        return {"anyOf": [dict(kind) for kind in _ANY_PLAIN]} if self._plain else {}

    def _plainly(self, built: JsonObject, kinds: Sequence[str]) -> JsonObject:
        """Return the schema in plain keywords: with one type, and with alternatives that stand alone."""
        for part in built.pop("allOf", ()):
            built = joined(built, part)
        _plain_values(built)
        given: list[JsonObject] = built.pop("anyOf", None) or built.pop("oneOf", None) or []
        alternatives = [part for part in given if part.get("type") != "null"]
        several = [kind for kind in kinds if kind != "null"]
        if isinstance(built.get("type"), list):
            del built["type"]
            if len(several) == 1:
                built["type"] = several[0]
            elif not alternatives:
                alternatives = [{"type": kind} for kind in several]
        built = {key: value for key, value in built.items() if key in PLAIN_KEYWORDS}
        if len(alternatives) > 1:
            shared = {key: value for key, value in built.items() if key in ("description", "title")}
            beside = {key: value for key, value in built.items() if key not in shared}
            return {**shared, "anyOf": [self._fitting(joined(beside, part)) for part in alternatives]}
        return self._fitting(joined(built, alternatives[0]) if alternatives else built)

    def _fitting(self, built: JsonObject) -> JsonObject:
        """Return a schema without the keywords of another type than its own."""
        kind = built.get("type")
        if kind is None:
            return built if "anyOf" in built else {**built, **self._any()}
        foreign = (() if kind == "object" else _OF_OBJECTS) + (() if kind == "array" else _OF_ARRAYS)
        foreign += () if kind == "string" else ("enum",)
        return self._completed({key: value for key, value in built.items() if key not in foreign}, (kind,))


def joined(base: Mapping[str, Any], part: Mapping[str, Any]) -> JsonObject:
    """Return a schema with what both require; where both speak of the same, `part` counts if it says more."""
    both: JsonObject = {**base, **part}
    properties: JsonObject = {**base.get("properties", {})}
    for key, schema in part.get("properties", {}).items():
        if key not in properties or not _is_any(schema):
            properties[key] = schema
    if "properties" in both:
        both["properties"] = properties
    required = dict.fromkeys((*base.get("required", ()), *part.get("required", ())))
    if required:
        both["required"] = list(required)
    if "description" in base and base["description"] != both["description"]:
        both["description"] = f"{base['description']} {both['description']}"
    return both


def _plain_values(built: JsonObject) -> None:
    """Move fixed values that are not text into words."""
    if "const" in built:
        built["enum"] = [built.pop("const")]
    values: list[Any] = built.get("enum", [])
    if not all(isinstance(value, str) for value in values):
        del built["enum"]
        explain(built, f"One of {as_json(values)}.")


def _is_any(schema: Mapping[str, Any]) -> bool:
    return not schema or schema == {"anyOf": _ANY_PLAIN}


def _named(value: Any) -> Mapping[str, Any]:
    """Return properties by name, also from a list of objects with names."""
    if isinstance(value, Mapping):
        return value
    items: list[Any] = value if isinstance(value, list) else []
    return {
        item["name"]: {key: part for key, part in item.items() if key not in ("name", "required")}
        for item in items
        if isinstance(item, Mapping) and isinstance(item.get("name"), str)
    }


def _part_of(root: Any, ref: str) -> Any:
    """Return the part of the schema that a reference names as a path; None if there is none."""
    if ref != "#" and not ref.startswith("#/"):
        return None
    part = root
    for step in ref.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(part, Mapping):
            part = part.get(key)
        elif isinstance(part, list) and key.isdecimal() and len(key) <= _MAX_INDEX_CHARS and int(key) < len(part):
            part = part[int(key)]
        else:
            return None
    return part
