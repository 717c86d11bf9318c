"""Fields with values, for the template: a tree of nodes, each with its name in the form and its path in the value."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from markupsafe import Markup, escape

from nova_workers.console.schema_forms.shapes import Option, Shape, Unreadable

_NULL = re.compile(r"\b[Nn]ull\b")
_LITERAL = re.compile(r"``?([^`]+)``?")


@dataclass(frozen=True, slots=True)
class Node:
    """A field of a form.

    Attributes:
        name: In the form; see `reading`.
        path: In the value; the API names errors by it.
        text: Of a text, number, choice, list of lines, or JSON.
        chosen: The ticked words, or the word of a variant.
        is_on: Whether the value is there, of one that may be null.
        as_json: Whether the value does not fit its shape, and is edited as JSON.
        children: In their order; with the key of each entry.
    """

    shape: Shape
    name: str
    path: str
    key: str = ""
    text: str = ""
    chosen: tuple[str, ...] = ()
    is_on: bool = True
    as_json: bool = False
    children: tuple["Node", ...] = ()

    @property
    def id(self) -> str:
        """The element's id."""
        return f"f-{self.name}"

    @property
    def hint(self) -> Markup:
        """What the schema says of it, in which a null is what it is in the form."""
        blank = "blank" if self.shape.kind in {"text", "number", "choice", "json"} else "unticked"
        return _marked_up(_NULL.sub(lambda found: blank.title() if found[0] == "Null" else blank, self.shape.hint))

    @property
    def about(self) -> Markup:
        """What the schema says of its whole kind, beside the hint."""
        return _marked_up(self.shape.about)

    @property
    def is_set(self) -> bool:
        """Whether it differs from its default."""
        match self.shape.kind:
            case "text" | "number" | "choice" | "json":
                differs = self.text != _text(self.shape, self.shape.default)
            case "flag":
                differs = self.is_on != bool(self.shape.default)
            case "rows" | "entries":
                differs = bool(self.children)
            case _ if self.shape.nullable:
                differs = self.is_on
            case "lines" | "ticks":
                differs = bool(self.text or self.chosen)
            case _:
                differs = any(child.is_set or self.shape.kind == "options" for child in self.children if child.is_on)
        return differs or self.as_json

    def child(self, key: str) -> "Node":
        """Return the node of a property."""
        return next(child for child in self.children if child.key == key)


def make_node(shape: Shape, value: object, name: str = "", path: str = "", key: str = "") -> Node:
    """Return the field of a value."""
    if _is_odd(shape, value):
        return Node(shape, name, path, key, text=_json(value), as_json=True)
    bare = Node(shape, name, path, key, is_on=value is not None or not shape.nullable)
    match shape.kind:
        case "group" | "options":
            node = replace(bare, children=_properties(shape, value, name, path))
        case "variant":
            node = _with_variants(bare, cast(Mapping[str, object], value or {}))
        case "rows" | "entries":
            node = replace(bare, children=_items(shape, value, name, path))
        case "lines":
            node = replace(bare, text="\n".join(cast(list[str], value or [])))
        case "ticks":
            chosen = tuple(cast(list[str], value or []))
            node = replace(bare, shape=_with_lost(shape, chosen), chosen=chosen)
        case "flag":
            node = replace(bare, is_on=value is True)
        case _:
            node = replace(bare, text=_text(shape, value))
    return node


def _items(shape: Shape, value: object, name: str, path: str) -> tuple[Node, ...]:
    entries = (
        [(str(at), row) for at, row in enumerate(cast(list[object], value or []))]
        if shape.kind == "rows"
        else cast(Mapping[str, object], value or {}).items()
    )
    return tuple(
        make_node(shape.row, entry, f"{name}.{at}", _join(path, key), key) for at, (key, entry) in enumerate(entries)
    )


def _with_lost(shape: Shape, chosen: Iterable[str]) -> Shape:
    """Return the shape with what is chosen and no longer known, so that it can be unticked."""
    known = {option.value for option in shape.options}
    lost = [Option(word, "This no longer exists.") for word in chosen if word not in known]
    return shape.with_options([*shape.options, *lost])


def split_errors(root: Node, errors: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return messages by the path of the innermost field that has or contains their place; and the rest."""
    paths = frozenset(_paths(root))
    placed: dict[str, str] = {}
    rest: dict[str, str] = {}
    for place, message in errors.items():
        found = max((path for path in paths if place == path or place.startswith(f"{path}.")), key=len, default="")
        if found:
            inner, said = place.removeprefix(found).strip("."), message.removeprefix(f"{place}: ")
            placed[found] = "; ".join(filter(None, (placed.get(found), f"{inner}: {said}" if inner else said)))
        else:
            rest[place] = message
    return placed, rest


def _properties(shape: Shape, value: object, name: str, path: str) -> tuple[Node, ...]:
    values = cast(Mapping[str, object], value or {})
    children = [
        make_node(
            part,
            values.get(key, None if shape.kind == "options" else part.default),
            _join(name, key),
            _join(path, key),
            key,
        )
        for key, part in shape.fields.items()
    ]
    if shape.kind == "options":
        return tuple(replace(child, is_on=child.key in values) for child in children)
    return tuple(children)


def _with_variants(bare: Node, value: Mapping[str, object]) -> Node:
    chosen = _kind_of(bare.shape, value) or ""
    rest = {word: each for word, each in value.items() if word != bare.shape.discriminator}
    children = tuple(
        make_node(part, rest if word == chosen else {}, f"{bare.name}.{word}", _join(bare.path, word), word)
        for word, part in bare.shape.fields.items()
    )
    return replace(bare, chosen=(chosen,), children=children)


def _is_odd(shape: Shape, value: object) -> bool:
    """Return whether a value cannot be shown in the shape's own field without loss: it is edited as JSON."""
    if value is None:
        return False
    match shape.kind:
        case "lines" | "ticks":
            odd = not isinstance(value, list | tuple) or not all(map(_is_line, cast(list[object], value)))
        case "rows":
            odd = not isinstance(value, list | tuple)
        case "entries":
            odd = not isinstance(value, Mapping)
        case "group" | "options":
            # A key that the schema does not know would be lost.
            odd = not isinstance(value, Mapping) or any(
                key not in shape.fields and part not in (None, {}, [])
                for key, part in cast(Mapping[str, object], value).items()
            )
        case "variant":
            odd = not isinstance(value, Mapping) or _kind_of(shape, cast(Mapping[str, object], value)) is None
        case _:
            odd = False
    return odd


def _is_line(word: object) -> bool:
    return isinstance(word, str) and bool(word) and "\n" not in word and word == word.strip()


def _kind_of(shape: Shape, value: Mapping[str, object]) -> str | None:
    """Return which variant a value is, the first if it has nothing yet; None if it is none of them."""
    word = value.get(shape.discriminator, None if value else next(iter(shape.fields)))
    return word if isinstance(word, str) and word in shape.fields else None


def _text(shape: Shape, value: object) -> str:
    if value is None or (shape.kind == "json" and value == {}):
        return ""
    if shape.kind == "json":
        return _json(value)
    return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)


def _json(value: object) -> str:
    return value if isinstance(value, Unreadable) else json.dumps(value, indent=2, ensure_ascii=False)


def _paths(node: Node) -> list[str]:
    return [node.path, *(path for child in node.children for path in _paths(child))]


def _marked_up(text: str) -> Markup:
    words = str(escape(" ".join(text.split())))
    return Markup(_LITERAL.sub(r"<code>\1</code>", words))  # noqa: S704 - escaped just before


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
