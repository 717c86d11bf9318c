"""Values that are stored as JSON and that another release may read: during an upgrade two releases share one database.

A later release adds fields. It does not store those that are null, since release 0.2.0 refuses each field that it does
not know. Another field that holds nothing (false, an empty list) changes nothing here, and is left out. One that holds
something means what this release cannot do, such as a limit that it would not check: the value is refused, and its run
stays queued for a process that knows it. So the default of a new field is nothing, and null where it can be.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from nova_workers.base.errors import NewerValue

T_co = TypeVar("T_co", covariant=True)

_UNKNOWN = "extra_forbidden"
_NOTHING = (None, False, 0, "", [], {})


class _Validate(Protocol[T_co]):
    def __call__(self, value: Any, /, *, extra: Any = None) -> T_co: ...


def to_store(model: type[BaseModel], value: BaseModel) -> dict[str, Any]:
    """Return a value as its row has it: without fields that are null. Null inside free JSON stays.

    Args:
        model: Whose fields are stored; those that a subclass adds are left out.
        value: An instance of it.
    """
    return model.model_dump(value, mode="json", include=set(model.model_fields), exclude_none=True)


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
