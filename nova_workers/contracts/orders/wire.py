"""The base of values in camelCase, and the identifiers that they contain."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]
"""Printable ASCII without blanks: identifiers are stored in the clear, so they have no room for sentences."""


def _refuse_null(value: object) -> object:
    if value is None:
        raise PydanticCustomError("null", "leave the field out, or give it a value; null is neither")
    return value


GIVEN = BeforeValidator(_refuse_null)
"""The validator of an optional field: it may be left out, but not be null, since null and nothing would have different
keys."""


class WireValue(BaseModel):
    """A value with exactly these fields: camelCase in JSON, snake_case in Python."""

    # Built at first use: the API imports more of these than a request needs.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,
        allow_inf_nan=False,
    )

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Return the value of parsed JSON, whose fields are in camelCase only.

        Raises:
            pydantic.ValidationError: It does not fit.
        """
        return cls.model_validate(value, by_alias=True, by_name=False)

    def to_wire(self) -> dict[str, Any]:
        """Return the value as parsed JSON, without fields that are not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class OpenValue(WireValue):
    """A value that may have more fields than these; others are ignored."""

    model_config = ConfigDict(defer_build=True, extra="ignore")
