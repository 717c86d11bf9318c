"""Common parts of the HTTP contract's request and response bodies.

Inputs forbid unknown fields, so that a misspelled field is a 422 and is not silently ignored. Times are RFC 3339 in
UTC. Lists come in pages with an opaque `next_cursor`.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from nova_workers.base.true_numbers import TrueNumbers

T = TypeVar("T")


_NUMBER = re.compile(r"\s*[-+]?[\d_.]+\s*")


def not_a_number(value: object) -> object:
    """Refuse a number in place of a time, also as text, as in a query: pydantic would guess its unit.

    Raises:
        ValueError: It is one.
    """
    if isinstance(value, (int, float)) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise ValueError("should be a time in RFC 3339 with an offset, such as 2030-05-01T09:00:00+02:00")
    return value


Moment = Annotated[
    AwareDatetime,
    BeforeValidator(not_a_number),
    # Times near the limits of datetime cannot be converted to other time zones.
    Field(ge=datetime(2000, 1, 1, tzinfo=UTC), le=datetime(2200, 1, 1, tzinfo=UTC)),
]
"""A time with an offset, as text."""


_ONE_LINE: Final = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"

OneLine = Annotated[str, StringConstraints(pattern=_ONE_LINE)]
"""What people and programs call things. A control character in it could move the cursor of a terminal, hide what
follows or end a line of a log; a mark of writing direction could show letters in another order."""

Name = Annotated[OneLine, StringConstraints(min_length=1, max_length=200)]


def is_one_line(text: str) -> bool:
    """Return whether a text is what `OneLine` takes."""
    return re.fullmatch(_ONE_LINE, text) is not None and not text.endswith("\n")


class Body(TrueNumbers):
    """A request body."""

    # Built at first use, as views are: a process imports more of these than it reads or sends.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class View(BaseModel):
    """A response body. Clients ignore unknown fields, which a newer API may send."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Problem(View):
    """An error in the format of RFC 9457 (``application/problem+json``).

    `code` is stable for programs; `detail` quotes the value and says what to do; `errors` names fields.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    instance: str | None = None
    errors: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    context: dict[str, Any] = Field(default_factory=dict[str, Any])


class Page(View, Generic[T]):
    """One page of a list, newest first unless documented otherwise. `next_cursor` is null on the last page."""

    items: list[T]
    next_cursor: str | None = None
