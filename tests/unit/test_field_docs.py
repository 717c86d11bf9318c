"""Docstrings below fields, in the JSON schemas of models."""

from typing import Annotated

from pydantic import Field

from nova_workers.base.field_docs import DescribedFields


class _Inner(DescribedFields):
    depth: int = 0
    """How deep.

    With a second paragraph.
    """


class _Outer(DescribedFields):
    """Not a field's docstring."""

    inner: _Inner = _Inner()
    """A model in it."""
    given: Annotated[str, Field(description="By its field")] = ""
    """By its docstring."""
    bare: str = ""


class _Narrowed(_Outer):
    given: str = ""
    extra: int = 0
    """Of the subclass."""


def _descriptions(schema: dict[str, dict[str, dict[str, str]]]) -> dict[str, str | None]:
    return {name: field.get("description") for name, field in schema["properties"].items()}


def test_docstrings_below_fields_are_their_descriptions() -> None:
    schema = _Outer.model_json_schema()
    assert _descriptions(schema) == {"inner": "A model in it.", "given": "By its field", "bare": None}
    assert schema["$defs"]["_Inner"]["properties"]["depth"]["description"] == "How deep.\n\nWith a second paragraph."


def test_a_subclass_describes_the_fields_that_it_declares_and_inherits_the_others() -> None:
    assert _descriptions(_Narrowed.model_json_schema()) == {
        "inner": "A model in it.",
        "given": None,
        "bare": None,
        "extra": "Of the subclass.",
    }
