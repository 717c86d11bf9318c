"""Forms from JSON schemas: what a value becomes in a form, and back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from nova_workers.base.clock import SystemClock
from nova_workers.console.assets import Assets
from nova_workers.console.forms import Form
from nova_workers.console.rendering import build_templates
from nova_workers.console.schema_forms import edited, make_node, read_value, shape_of, split_errors
from tests.support.browser_forms import fields_of


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str] = []


class Shed(BaseModel):
    """One field of every shape, with what the schema says of it."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    title: str
    notes: Annotated[str, Field(max_length=5_000)] = ""
    size: Literal["small", "large"] = "small"
    level: Annotated[int, Field(ge=1, le=5)] | None = None
    """Null is ``no`` <level>."""
    ratio: float = 0.5
    open: bool = True
    words: list[str] = []
    only: list[str] | None = None
    numbers: list[int] = []
    grid: list[list[int]] = []
    owner: Cat | None = None
    pets: dict[str, Annotated[Cat | Dog, Field(discriminator="kind")]] = {}
    labels: dict[str, str] = {}
    free: dict[str, Any] = {}
    either: int | str = 1


SHAPE = shape_of(Shed.model_json_schema())


def sent(value: dict[str, Any]) -> Form:
    """Return what a browser sends for the form of a value."""
    templates = build_templates(Assets(), SystemClock())
    macro: Any = templates.get_template("schema_form.html").module
    page = f'<form id="form">{macro.field(make_node(SHAPE, value), {})}</form>'
    lists = {name: tuple(values) for name, values in fields_of(page, "form").items()}
    return Form({name: values[-1] for name, values in lists.items()}, lists)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"title": "  kept  ", "notes": "\none\n\n<b>two</b> &amp;\n"},
        {"size": "large", "level": 3, "ratio": 1.25, "open": False},
        {"words": ["a b", "c"], "only": []},
        {"only": ["x"]},
        {"words": ["two\nlines", "", " blanks "]},
        {"numbers": [1, 2, 0], "grid": [[1], [2, 3], []]},
        {"owner": {"kind": "cat", "lives": 3}},
        {"pets": {"tom": {"kind": "cat", "lives": 1}, "rex": {"kind": "dog", "tricks": ["sit", "roll over"]}}},
        {"labels": {"a.b": "1", "c@d": ""}},
        {"free": {"deep": [{"er": None}]}, "either": "text"},
        {"owner": {"kind": "cat", "not": "known"}, "pets": {"tom": {"kind": "bird"}}},
    ],
    ids=str,
)
def test_a_value_is_the_same_after_it_was_in_a_form(changes: dict[str, Any]) -> None:
    value = Shed(title="Shed").model_dump() | changes
    reading = read_value(SHAPE, sent(value))
    assert reading.errors == {}
    assert isinstance(reading.value, dict)
    # What has its default may be left out.
    assert Shed(title="Shed").model_dump() | reading.value == value


def test_rows_are_added_removed_and_moved_by_their_ids() -> None:
    form = sent({"title": "Shed", "numbers": [10, 20, 30]})
    moved = edited(form, "up:numbers.2")
    assert read_value(SHAPE, moved).value == {"title": "Shed", "numbers": [10, 30, 20]}
    fewer = edited(moved, "remove:numbers.0")
    assert read_value(SHAPE, fewer).value == {"title": "Shed", "numbers": [30, 20]}
    assert edited(fewer, "add:numbers").list("numbers@row") == ("2", "1", "3")
    assert edited(form, "add:labels").list("labels@row") == ("0",)


@pytest.mark.parametrize("action", ["up:numbers.0", "up:numbers.9", "remove:numbers.9", "remove:", "add:", "nonsense"])
def test_a_button_that_fits_nothing_changes_nothing(action: str) -> None:
    form = sent({"title": "Shed", "numbers": [10, 20]})
    assert read_value(SHAPE, edited(form, action)).value == {"title": "Shed", "numbers": [10, 20]}


def test_two_entries_of_one_name_are_refused_and_both_are_kept() -> None:
    form = sent({"title": "Shed", "labels": {"a": "1", "b": "2"}})
    reading = read_value(SHAPE, Form({**form.values, "labels.1@key": "a"}, form.lists))
    assert reading.errors == {"labels": "'a' is there twice. Rename or remove one."}
    assert reading.value == {"title": "Shed", "labels": {"a": "1", "a-2": "2"}}


def test_an_error_goes_to_the_innermost_field_that_has_its_place() -> None:
    root = make_node(SHAPE, {"title": "Shed", "pets": {"tom": {"kind": "cat", "lives": 1}}, "words": ["x"]})
    errors = {"pets.tom.cat.lives": "too many", "words.0": "words.0: too short", "else.where": "odd"}
    placed, rest = split_errors(root, errors)
    assert placed == {"pets.tom.cat.lives": "too many", "words": "0: too short"}
    assert rest == {"else.where": "odd"}


def test_a_hint_is_escaped_marks_literals_and_says_what_null_is_in_the_form() -> None:
    assert make_node(SHAPE, {}).child("level").hint == "Blank is <code>no</code> &lt;level&gt;."


def test_limits_are_said_in_words() -> None:
    assert SHAPE.fields["level"].bounds == "1 to 5"
    assert SHAPE.fields["ratio"].bounds == ""
