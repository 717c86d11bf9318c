"""Reads a JSON value from what a browser sent for a shape; and adds, removes and moves rows in it.

A field's name in the form is its path, where a row of a list or an entry of an object is an id of its own, so that it
stays the same when another is removed. Beside a field there may be: ``@on`` (ticked: the value is not null, or the key
is there), ``@row`` (the ids of the rows, in their order), ``@key`` (an entry's key), ``@kind`` (which variant) and
``@json`` (the value as JSON).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nova_workers.console.forms import Form
from nova_workers.console.schema_forms.shapes import Kind, Shape, Unreadable


class _Missing:
    """Stands for a value that the form leaves out."""


_MISSING: Final = _Missing()
_BLANK_IS_NULL: Final = frozenset({"text", "choice", "number", "json"})
"""Fields whose null is a blank; of the others it is an unticked box."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a form says.

    Attributes:
        value: For the API. What cannot be read is in it as its text, which the form shows again.
        errors: Messages by path, of what cannot be read.
    """

    value: object
    errors: Mapping[str, str]


def read_value(shape: Shape, form: Form, name: str = "") -> Reading:
    """Return the value of a shape."""
    errors: dict[str, str] = {}
    value = _Reader(form, errors).read(shape, name, "")
    return Reading({} if isinstance(value, _Missing) else value, errors)


def edited(form: Form, action: str) -> Form:
    """Return a form after a button of its rows: ``add:<name>``, ``remove:<name>.<id>`` or ``up:<name>.<id>``."""
    verb, _, target = action.partition(":")
    name, _, row = (target, "", "") if verb == "add" else target.rpartition(".")
    rows = list(form.list(f"{name}@row"))
    if verb == "add":
        rows.append(str(max((int(at) for at in rows if at.isdecimal()), default=-1) + 1))
    elif row in rows and verb == "remove":
        rows.remove(row)
    elif row in rows and (at := rows.index(row)) > 0:
        rows[at - 1 : at + 1] = [rows[at], rows[at - 1]]
    return replace(form, lists={**form.lists, f"{name}@row": tuple(rows)})


@dataclass(frozen=True, slots=True)
class _Reader:
    form: Form
    errors: dict[str, str]

    def read(self, shape: Shape, name: str, path: str) -> object:
        if f"{name}@json" in self.form.values:
            return self._json(shape, f"{name}@json", path)
        if shape.nullable and shape.kind not in _BLANK_IS_NULL and f"{name}@on" not in self.form.values:
            return None
        readers: dict[Kind, Callable[[Shape, str, str], object]] = {
            "text": self._text,
            "choice": self._text,
            "number": self._text,
            "flag": self._flag,
            "lines": self._lines,
            "ticks": self._ticks,
            "group": self._group,
            "options": self._group,
            "rows": self._rows,
            "entries": self._entries,
            "variant": self._variant,
            "json": self._json,
        }
        return readers[shape.kind](shape, name, path)

    def _flag(self, _: Shape, name: str, __: str) -> object:
        return name in self.form.values

    def _lines(self, _: Shape, name: str, __: str) -> object:
        return [line.strip() for line in self.form.value(name).split("\n") if line.strip()]

    def _ticks(self, _: Shape, name: str, __: str) -> object:
        return list(self.form.list(name))

    def _text(self, shape: Shape, name: str, _: str) -> object:
        if name not in self.form.values:
            return _MISSING
        text = self.form.value(name)
        if shape.nullable and not text.strip():
            return None
        return _number(shape, text) if shape.kind == "number" else text

    def _json(self, shape: Shape, name: str, path: str) -> object:
        text = self.form.value(name)
        if not text.strip():
            return None if shape.nullable else _MISSING
        try:
            return json.loads(text)
        except ValueError as error:
            self.errors[path] = f"This is not JSON: {error}."
            return Unreadable(text)

    def _rows(self, shape: Shape, name: str, path: str) -> list[object]:
        ids = self.form.list(f"{name}@row")
        values = [self.read(shape.row, f"{name}.{row}", _join(path, str(at))) for at, row in enumerate(ids)]
        return [{} if isinstance(value, _Missing) else value for value in values]

    def _entries(self, shape: Shape, name: str, path: str) -> dict[str, object]:
        found: dict[str, object] = {}
        for row in self.form.list(f"{name}@row"):
            key = self.form.value(f"{name}.{row}@key").strip()
            if key in found:
                self.errors[path] = f"{key!r} is there twice. Rename or remove one." if key else "Two have no name."
                while key in found:
                    key += "-2"
            value = self.read(shape.row, f"{name}.{row}", _join(path, key))
            found[key] = "" if isinstance(value, _Missing) else value
        if "" in found:
            self.errors.setdefault(path, "One has no name. Name or remove it.")
        return found

    def _variant(self, shape: Shape, name: str, path: str) -> object:
        kind = self.form.value(f"{name}@kind")
        if kind not in shape.fields:
            return {}
        rest = self._group(shape.fields[kind], f"{name}.{kind}", path)
        return {shape.discriminator: kind, **rest}

    def _group(self, shape: Shape, name: str, path: str) -> dict[str, object]:
        wanted = {
            key: part
            for key, part in shape.fields.items()
            if shape.kind != "options" or f"{_join(name, key)}@on" in self.form.values
        }
        values = {key: self.read(part, _join(name, key), _join(path, key)) for key, part in wanted.items()}
        if shape.kind == "options":
            return {key: {} if isinstance(value, _Missing) else value for key, value in values.items()}
        return {key: value for key, value in values.items() if not _is_left_out(shape.fields[key], value)}


def _is_left_out(shape: Shape, value: object) -> bool:
    """Return whether a property's value says no more than its absence."""
    if isinstance(value, _Missing):
        return True
    if shape.required:
        return False
    return value == shape.default if "default" in shape.schema else value in ({}, [])


def _number(shape: Shape, text: str) -> object:
    """Return a number; text that is none as it is, for the API to refuse."""
    if not text.strip():
        return _MISSING
    try:
        return int(text) if shape.is_whole else float(text)
    except ValueError:
        return text


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
