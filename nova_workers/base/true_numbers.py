"""Numbers that are numbers: pydantic takes ``true`` for 1, which no configuration and no request means."""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

_NUMBERS = frozenset({"int", "float"})
_INSIDE = frozenset({"schema", "fields", "choices", "items_schema", "keys_schema", "values_schema", "extras_schema"})
"""Parts of a schema that hold the schemas of values. A default, or how a value is written, is none."""


def _checked(schema: Any) -> Any:
    """Return a schema whose numbers are checked. Models in it have their own base."""
    if isinstance(schema, tuple):
        # A choice of a union, with its label.
        return tuple(_checked(part) for part in cast("tuple[Any, ...]", schema))
    if isinstance(schema, list):
        return [_checked(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    given = cast("dict[str, Any]", schema)
    kind = given.get("type")
    if not isinstance(kind, str):
        # Fields of a model, or choices of a union, by their names.
        return {name: _checked(part) for name, part in given.items()}
    if kind in _NUMBERS and not given.get("strict"):
        return core_schema.no_info_before_validator_function(_no_boolean, cast(CoreSchema, given))
    return {key: _checked(part) if key in _INSIDE else part for key, part in given.items()}


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("number_type", "Input should be a number, and not true or false")
    return value


class TrueNumbers(BaseModel):
    """Base of models whose numbers refuse booleans; numbers as text, and 2.0 for 2, are taken as by pydantic."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema, with a check before each number."""
        return cast(CoreSchema, _checked(handler(source)))
