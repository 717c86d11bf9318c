"""Reads values that another release of the code may have stored: during an upgrade two releases share one database.

A later release adds fields, and stores their defaults with all values it writes. A field that holds nothing (null,
false, an empty list) changes nothing here, and is left out. One that holds something means what this release cannot do,
such as a limit that it would not check: the value is refused, and its run stays queued for a process that knows it. So
the default of a new field is nothing.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from nova_workers.errors import NewerValue

__all__ = ["read_stored"]

T_co = TypeVar("T_co", covariant=True)

_UNKNOWN = "extra_forbidden"
_NOTHING = (None, False, 0, "", [], {})


class _Validate(Protocol[T_co]):
    def __call__(self, value: Any, /, *, extra: Any = None) -> T_co: ...


def read_stored(validate: _Validate[T_co], value: object) -> T_co:
    """Return a stored value.

    Args:
        validate: `model_validate` of a model, or `validate_python` of an adapter.
        value: As the row has it.

    Raises:
        NewerValue: A later release wrote it, and it uses what this one does not know.
        ValidationError: It has another form.
    """
    try:
        return validate(value)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        if any(problem["type"] != _UNKNOWN for problem in problems):
            raise
        used = [".".join(map(str, problem["loc"])) for problem in problems if problem["input"] not in _NOTHING]
        if used:
            raise NewerValue(
                f"A later release wrote a value with {', '.join(map(repr, used))}, which this one does not know. "
                "Replace this process by the later release.",
                fields=used,
            ) from error
        return validate(value, extra="ignore")
