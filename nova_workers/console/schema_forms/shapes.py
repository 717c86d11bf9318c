"""Shapes: which field of a form edits a value of a JSON schema."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from nova_workers.contracts.content import JsonObject

Kind = Literal[
    "text",  # a string
    "choice",  # one of some words
    "number",
    "flag",
    "lines",  # strings, one a line
    "ticks",  # strings, of known ones
    "group",  # an object with known properties
    "options",  # an object whose possible keys are known, each ticked
    "rows",  # a list
    "entries",  # an object with keys of the author's choice
    "variant",  # an object of one of several kinds
    "json",
]

LONG_TEXT_CHARS: Final = 500
"""A text that may be longer has several lines."""

_PLAIN: Final[Mapping[str, Kind]] = {"boolean": "flag", "integer": "number", "number": "number", "string": "text"}
_UNITS: Final[Mapping[str, str]] = {"usd": "USD", "s": "seconds", "ms": "milliseconds", "bytes": "bytes"}
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS: Final[Mapping[str, str]] = {"id": "ID", "url": "URL", "cwd": "Working directory"}


class Unreadable(str):
    """What was typed as JSON and is none."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Option:
    """A known value: its word, what it is, and its parts: of a tool its inputs, each as name and description."""

    value: str
    note: str = ""
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """How a value is edited.

    Attributes:
        nullable: Whether the value may be null, which is a blank field, or an unticked box.
        default: Of a property that is left out.
        hint: What the schema says of it.
        fields: Of a group and of options, by key; of a variant, by the word in its `discriminator`.
        item: Of rows and entries.
        options: Of a choice, of ticks, and what a text suggests.
    """

    kind: Kind
    label: str = ""
    hint: str = ""
    about: str = ""
    nullable: bool = False
    required: bool = False
    default: object = None
    schema: JsonObject = field(default_factory=dict[str, Any])
    fields: Mapping[str, "Shape"] = field(default_factory=dict[str, "Shape"])
    item: "Shape | None" = None
    options: tuple[Option, ...] = ()
    discriminator: str = ""

    @property
    def row(self) -> "Shape":
        """The shape of one row or entry."""
        if self.item is None:
            raise TypeError(f"A {self.kind} has no rows.")
        return self.item

    @property
    def is_whole(self) -> bool:
        """Whether it is a number without a fraction."""
        return self.schema.get("type") == "integer"

    @property
    def is_long(self) -> bool:
        """Whether it is a text of several lines."""
        return self.schema.get("maxLength", 0) > LONG_TEXT_CHARS and self.schema.get("pattern") is None

    @property
    def bounds(self) -> str:
        """What its values are limited to, in words; empty without limits."""
        low = self.schema.get("minimum", self.schema.get("exclusiveMinimum"))
        high = self.schema.get("maximum", self.schema.get("exclusiveMaximum"))
        if low is not None and high is not None:
            return f"{low:,} to {high:,}"
        if low is not None:
            return f"more than {low:,}" if "exclusiveMinimum" in self.schema else f"at least {low:,}"
        most = self.schema.get("maxItems", self.schema.get("maxProperties"))
        if most is not None and self.kind in {"rows", "entries", "lines"}:
            return f"at most {most:,}"
        return ""

    def with_options(self, options: Iterable[Option]) -> "Shape":
        """Return this shape with known values: a list has ticks for them, a text suggests them."""
        return replace(self, kind="ticks" if self.kind == "lines" else self.kind, options=tuple(options))


def shape_of(schema: JsonObject, definitions: JsonObject | None = None, *, name: str = "") -> Shape:
    """Return the shape of a schema.

    Args:
        definitions: Its ``$defs``, if it is a part of another schema.
        name: The property's, from which its label is made.
    """
    known: JsonObject = schema.get("$defs", {}) if definitions is None else definitions
    whole, nullable = _without_null(_resolved(schema, known), known)
    shape = _shape(whole, known)
    about = str(_named(schema, known).get("description", ""))
    hint = str(schema.get("description", about))
    return replace(
        shape,
        label=label_of(name),
        hint=hint,
        about="" if about == hint else about,
        nullable=nullable,
        default=schema.get("default", whole.get("default")),
        schema=whole,
    )


def options_shape(shape: Shape, fields: Mapping[str, Shape]) -> Shape:
    """Return a shape for an object of which all possible keys are known."""
    return replace(shape, kind="options", fields=dict(fields))


def _shape(schema: JsonObject, definitions: JsonObject) -> Shape:
    if isinstance(words := schema.get("enum"), list):
        return Shape("choice", options=tuple(Option(str(word)) for word in cast(list[object], words)))
    match schema.get("type"), schema:
        case _, {"oneOf": [*kinds], "discriminator": {"propertyName": str(named)}}:
            shape = _variant([cast(JsonObject, kind) for kind in kinds], named, definitions)
        case "array", {"items": {**items}}:
            item = shape_of(cast(JsonObject, items), definitions)
            shape = Shape("lines") if item.kind == "text" and not item.nullable else Shape("rows", item=item)
        case "object", {"properties": {**properties}}:
            shape = _group(cast(JsonObject, properties), schema.get("required", ()), definitions)
        case "object", _:
            shape = _entries(schema, definitions)
        case kind, _:
            shape = Shape(_PLAIN.get(str(kind), "json"))
    return shape


def _group(properties: JsonObject, required: Iterable[str], definitions: JsonObject) -> Shape:
    needed = frozenset(required)
    fields = {
        name: replace(shape_of(part, definitions, name=name), required=name in needed)
        for name, part in properties.items()
    }
    return Shape("group", fields=fields)


def _entries(schema: JsonObject, definitions: JsonObject) -> Shape:
    patterns: JsonObject = schema.get("patternProperties", {})
    values = next(iter(patterns.values()), schema.get("additionalProperties"))
    if not isinstance(values, dict):
        return Shape("json")
    return Shape("entries", item=shape_of(cast(JsonObject, values), definitions))


def _variant(kinds: list[JsonObject], named: str, definitions: JsonObject) -> Shape:
    variants: dict[str, Shape] = {}
    for kind in kinds:
        shape = shape_of(kind, definitions)
        word = shape.fields[named].schema.get("const")
        variants[str(word)] = replace(
            shape, label=str(word), fields={name: part for name, part in shape.fields.items() if name != named}
        )
    return Shape("variant", fields=variants, discriminator=named)


def _resolved(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    """Return a schema with what it refers to; its own keys win."""
    return {**_named(schema, definitions), **schema}


def _named(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    reference = schema.get("$ref")
    return {} if reference is None else definitions[str(reference).rpartition("/")[2]]


def _without_null(schema: JsonObject, definitions: JsonObject) -> tuple[JsonObject, bool]:
    """Return a schema that may be null without that, and whether it may."""
    members: list[JsonObject] = schema.get("anyOf", [])
    others = [member for member in members if member.get("type") != "null"]
    if len(others) != 1 or len(others) == len(members):
        return schema, False
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**_resolved(others[0], definitions), **rest}, True


def label_of(name: str) -> str:
    """Return the name of a property in words, whether it is in ``snake_case`` or in ``camelCase``."""
    words = _CAMEL.sub("_", name).lower().split("_") if _CAMEL.search(name) else name.split("_")
    unit = _UNITS.get(words[-1]) if len(words) > 1 else None
    text = " ".join(_WORDS.get(word, word) for word in (words[:-1] if unit else words))
    text = text[:1].upper() + text[1:]
    return f"{text} ({unit})" if unit else text
