"""Reads YAML from people into plain values, with the line and column of each, within bounds.

Only what JSON has is accepted: no tags, no merge keys, no duplicate keys, no cycles. Aliases (``*name``) are expanded,
and what they expand to counts, so that a short text cannot become a large value.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

MAX_CONFIG_BYTES: Final = 262_144
"""The limit of a file."""

_MAX_VALUES: Final = 20_000
_MAX_DEPTH: Final = 20
_TAG: Final = "tag:yaml.org,2002:"
_QUOTE_CHARS: Final = 60

Path = tuple[str | int, ...]
"""Where a value is in its file: keys and indexes."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a configuration file, and where."""

    file: str
    path: str
    message: str
    position: Position = Position(1, 1)

    def __str__(self) -> str:
        """Return the problem as compilers write theirs: ``file:line:column: path: message``."""
        path = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.position.line}:{self.position.column}: {path}{self.message}"


@dataclass(frozen=True, slots=True)
class Located:
    """A file's value, and where its parts are."""

    file: str
    value: dict[str, Any] = field(default_factory=dict[str, Any])
    values: dict[Path, Position] = field(default_factory=dict[Path, Position])
    keys: dict[Path, Position] = field(default_factory=dict[Path, Position])

    def problem(self, path: Path, message: str, *, of_key: bool = False) -> Problem:
        """Return a problem at a path of a validated value.

        Args:
            path: Keys and indexes. Parts that the file does not have, such as the tag of a union, are left out; the
                last one is a missing field, and stays.
            message: What is wrong.
            of_key: Whether the key is wrong, rather than its value.
        """
        real: Path = ()
        for part in path:
            if (*real, part) in self.values:
                real = (*real, part)
        is_missing = real[-1:] != path[-1:]
        places = self.keys if of_key and real in self.keys else self.values
        named = (*real, path[-1]) if is_missing else real
        return Problem(self.file, ".".join(map(str, named)), message, places.get(real, Position(1, 1)))


class _Refused(Exception):
    def __init__(self, message: str, mark: Any) -> None:
        super().__init__(message)
        self.message = message
        self.position = Position(1, 1) if mark is None else Position(mark.line + 1, mark.column + 1)


def read_yaml(text: str, file: str) -> tuple[Located, list[Problem]]:
    """Return a file's mapping with the positions of its parts, and what is wrong with its form.

    With a problem the value is empty. A text without content is an empty mapping.
    """
    try:
        _check_size(text)
        _check_events(text)
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
        located = Located(file)
        if node is not None:
            _Reader(located).read(node)
        return located, []
    except _Refused as error:
        return Located(file), [Problem(file, "", error.message, error.position)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        wrong = _Refused(f"this is not YAML: {error.problem or error.context}", mark)
        return Located(file), [Problem(file, "", wrong.message, wrong.position)]
    except yaml.YAMLError as error:
        # A character that YAML does not take; the library gives its place in words.
        return Located(file), [Problem(file, "", f"this is not YAML: {' '.join(str(error).split())}")]


def _check_size(text: str) -> None:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        found = text[error.start]
        raise _Refused(f"the file contains {found!r}, which UTF-8 cannot represent; remove it", None) from error
    if size > MAX_CONFIG_BYTES:
        raise _Refused(f"the file has {size} bytes; the most is {MAX_CONFIG_BYTES}", None)
    if "\x00" in text:
        raise _Refused("the file contains the character U+0000; remove it", None)


def _check_events(text: str) -> None:
    """Refuse tags, further documents and deep nesting before anything recursive sees the text."""
    depth = documents = 0
    for event in _events(text):
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _Refused(f"the tag {tag!r} is not accepted; write plain values", event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise _Refused(f"values are nested more than {_MAX_DEPTH} deep", event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _Refused("a second document begins here; a configuration is one", event.start_mark)


def _events(text: str) -> Iterator[Any]:
    yield from yaml.parse(text, Loader=yaml.CSafeLoader)


class _Reader:
    """Makes values of YAML nodes, and records where they are."""

    def __init__(self, located: Located) -> None:
        self._located = located
        self._count = 0
        self._open: set[int] = set()

    def read(self, node: Any) -> None:
        if not isinstance(node, yaml.MappingNode):
            raise _Refused("a configuration is a mapping of sections, such as 'engine:'", node.start_mark)
        self._located.value.update(self._mapping(node, ()))

    def _value(self, node: Any, path: Path) -> Any:
        self._count += 1
        if self._count > _MAX_VALUES:
            raise _Refused(
                f"the file has more than {_MAX_VALUES} values, with those that its aliases expand to", node.start_mark
            )
        self._located.values[path] = Position(node.start_mark.line + 1, node.start_mark.column + 1)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if id(node) in self._open:
            raise _Refused("this value contains itself", node.start_mark)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in node.value:
            name = _key(key)
            if name in made:
                raise _Refused(f"the key {name!r} is there twice", key.start_mark)
            self._located.keys[*path, name] = Position(key.start_mark.line + 1, key.start_mark.column + 1)
            made[name] = self._value(value, (*path, name))
        return made


def _key(node: Any) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _Refused("a key is a text", node.start_mark)
    if node.tag == f"{_TAG}merge":
        raise _Refused("merge keys (<<) are not accepted; write the fields out", node.start_mark)
    if node.tag in {f"{_TAG}bool", f"{_TAG}null"}:
        raise _Refused(f"YAML reads the key {node.value!r} as no text; put it in quotes", node.start_mark)
    # A number is what people write as the name of a model.
    return node.value


def _scalar(node: Any) -> Any:
    kind = node.tag.removeprefix(_TAG)
    if kind not in {"bool", "int", "float", "null"}:
        # Dates too: a version such as 2026-01-31 is a text here.
        return node.value
    try:
        return yaml.SafeLoader("").construct_object(node)
    except ValueError as error:
        shown = node.value[:_QUOTE_CHARS]
        raise _Refused(f"{shown!r} cannot be read as a number: {error}", node.start_mark) from error
