"""The top of a tool's schema: an object without alternatives, whose keys every provider takes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from nova_workers.contracts.content import JsonObject
from nova_workers.engines.tool_schemas.lint import NOT_AT_ROOT, PROPERTY_KEY
from nova_workers.engines.tool_schemas.nodes import joined
from nova_workers.engines.tool_schemas.words import as_json, explain

_MAX_KEY_CHARS: Final = 64
_MAX_CONDITION_CHARS: Final = 1_000
_MOST_ALTERNATIVES: Final = 20
_MOST_WORDS_CHARS: Final = 4_000
_ABOUT_OBJECTS = ("properties", "required", "additionalProperties", "patternProperties")
_TO_WORDS = ("not", "enum", "const", "if", "then", "else", "dependentRequired", "dependentSchemas", "propertyNames")


def object_root(schema: JsonObject) -> JsonObject | None:
    """Return a rebuilt schema as an object without alternatives at the top; None if its values are no objects.

    Alternatives become one object with the properties of all, of which those are required that all require. Which
    belong together, and other conditions, is then in the description.
    """
    words: list[str] = []
    root = {key: value for key, value in schema.items() if key not in ("allOf", "anyOf", "oneOf")}
    for part in schema.get("allOf", ()):
        merged = object_root(part)
        if merged is None:
            return None
        root = joined(root, merged)
    for keyword in ("oneOf", "anyOf"):
        parts = schema.get(keyword, ())
        objects = [part for part in map(object_root, parts) if part is not None]
        if parts and not objects:
            return None
        if objects:
            root = _with_alternatives(root, objects, words)
    kinds = root.get("type", "object")
    if kinds != "object" and "object" not in kinds and not any(keyword in root for keyword in _ABOUT_OBJECTS):
        return None
    root = {"type": "object", **{key: value for key, value in root.items() if key != "type"}}
    root.setdefault("properties", {})
    _conditions_in_words(root, words)
    if words:
        explain(root, " ".join(words)[:_MOST_WORDS_CHARS])
    return root


def renamed_keys(root: JsonObject) -> tuple[JsonObject, dict[str, str]]:
    """Return the schema with keys that every provider takes, and the tool's own keys by the new ones."""
    properties: Mapping[str, Any] = root["properties"]
    if all(map(PROPERTY_KEY.fullmatch, properties)):
        return root, {}
    taken = {key for key in properties if PROPERTY_KEY.fullmatch(key)}
    new: dict[str, str] = {}
    for key in properties:
        if key not in taken:
            new[key] = _free_key(key, taken)
            taken.add(new[key])
    renamed = {
        new.get(key, key): joined({"description": f"(The tool's own name of it is {key!r}.)"}, schema)
        if key in new
        else schema
        for key, schema in properties.items()
    }
    root = {**root, "properties": renamed}
    if "required" in root:
        root["required"] = [new.get(key, key) for key in root["required"]]
    return root, {wire: own for own, wire in new.items()}


def _with_alternatives(root: JsonObject, parts: Sequence[JsonObject], words: list[str]) -> JsonObject:
    found: dict[str, list[Any]] = {}
    for part in parts:
        for key, schema in part["properties"].items():
            found.setdefault(key, []).append(schema)
    own: Mapping[str, Any] = root.get("properties", {})
    properties = {**own, **{key: _any_of(schemas) for key, schemas in found.items() if key not in own or not own[key]}}
    shared = [set(part.get("required", ())) for part in parts]
    required = dict.fromkeys((*root.get("required", ()), *sorted(set.intersection(*shared))))
    merged = {**root, "properties": properties}
    if required:
        merged["required"] = list(required)
    if all(part.get("additionalProperties") is False for part in parts):
        merged.setdefault("additionalProperties", False)
    if len(parts) > 1:
        lines = [_in_words(part, set(own)) for part in parts[:_MOST_ALTERNATIVES]]
        words.append("Give the arguments of one of these forms: " + "; ".join(lines) + ".")
    elif "description" in parts[0]:
        words.append(parts[0]["description"])
    return merged


def _any_of(schemas: Iterable[Any]) -> JsonObject:
    different = {as_json(schema): schema for schema in schemas}
    if len(different) == 1 or any(not schema for schema in different.values()):
        return next((schema for schema in different.values() if schema), {})
    return {"anyOf": list(different.values())}


def _in_words(part: JsonObject, shared: set[str]) -> str:
    """Return an alternative in words: its name, and its arguments; those with ``?`` may be left out."""
    required = part.get("required", ())
    names = [
        _argument(key, schema, required=key in required)
        for key, schema in part["properties"].items()
        if key not in shared or key in required
    ]
    title = part.get("title") or part.get("description") or ""
    return f"{title}: {', '.join(names)}" if title else ", ".join(names) or "no others"


def _argument(key: str, schema: Mapping[str, Any], *, required: bool) -> str:
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    fixed = f" = {as_json(values[0])}" if len(values) == 1 else ""
    return f"{key}{'' if required else '?'}{fixed}"


def _conditions_in_words(root: JsonObject, words: list[str]) -> None:
    """Move what providers refuse at the top into words, and keep the properties that a condition speaks of."""
    conditions = {keyword: root.pop(keyword) for keyword in _TO_WORDS if keyword in root}
    for keyword in NOT_AT_ROOT:
        root.pop(keyword, None)
    for branch in (conditions.get("then"), conditions.get("else")):
        for key, schema in (branch or {}).get("properties", {}).items():
            root["properties"].setdefault(key, schema)
    if conditions:
        text = as_json(conditions)
        if len(text) <= _MAX_CONDITION_CHARS:
            words.append(f"The arguments must also fulfil this JSON schema: {text}.")


def _free_key(key: str, taken: set[str]) -> str:
    fit = "".join(char if PROPERTY_KEY.fullmatch(char) else "_" for char in key)[:_MAX_KEY_CHARS]
    base = fit if fit.strip("_") else "argument"
    free, number = base, 1
    while free in taken:
        number += 1
        suffix = f"_{number}"
        free = base[: _MAX_KEY_CHARS - len(suffix)] + suffix
    return free
