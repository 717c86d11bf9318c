"""Forms: what was typed, and what the API refused about it, field by field."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import Request

from nova_workers.base.errors import InvalidInput, Rejected
from nova_workers.base.validation import place_of, problem_of

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Form:
    """The state of a form, which its template shows again after a refusal.

    Attributes:
        values: What was typed, by field. A field that may repeat has all values in `lists`.
        errors: Messages by field.
        problem: What is wrong with the whole.
    """

    values: Mapping[str, str] = field(default_factory=dict[str, str])
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    errors: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str | None = None

    def value(self, name: str, default: object = "") -> str:
        """Return a field's text; without one the default, where None is empty."""
        return self.values.get(name, "" if default is None else str(default))

    def given(self, name: str) -> str | None:
        """Return a field's text without blanks around it; None if that is empty."""
        return self.values.get(name, "").strip() or None

    def list(self, name: str) -> tuple[str, ...]:
        """Return all values of a field, such as the ticked boxes of one name."""
        return self.lists.get(name, ())

    def refused(self, error: Rejected) -> "Form":
        """Return this form with what the API, or `build`, refused."""
        listed = cast(list[dict[str, object]], error.fields.get("errors") or [])
        errors = {_field(item): str(item.get("message") or "") for item in listed}
        if not errors and isinstance(named := error.fields.get("field"), str):
            errors = {named: error.message}
        return Form(self.values, self.lists, errors, error.message)


async def read_form(request: Request, *, max_fields: int = 1_000) -> Form:
    """Return the fields that a browser sent.

    Where a form may have files, which are not among them, call ``await request.form()`` before.
    """
    sent = await request.form(max_files=0, max_fields=max_fields)
    lists: dict[str, tuple[str, ...]] = {}
    for name, value in sent.multi_items():
        if not isinstance(value, UploadFile):
            # Browsers send line ends as CRLF.
            lists[name] = (*lists.get(name, ()), value.replace("\r\n", "\n"))
    return Form({name: values[-1] for name, values in lists.items()}, lists)


def build(model: type[M], values: Mapping[str, object]) -> M:
    """Return a body of the API from values by field; leave out what the form does not set.

    Raises:
        InvalidInput: A value is not valid; `Form.refused` shows each at its field.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        errors = [{"field": place_of(item), "message": problem_of(item, model)} for item in error.errors()]
        raise InvalidInput(
            "; ".join(f"{item['field']}: {item['message']}" for item in errors), errors=errors
        ) from error


def changes(model: type[M], stored: BaseModel, values: Mapping[str, object]) -> M:
    """Return the body of a PATCH from values by field, with only those that differ from what is stored.

    To send a field is an act of its own: it may reset a count, or move the next occurrence of a schedule.

    Raises:
        InvalidInput: A value is not valid; see `build`.
    """
    wanted = build(model, values)
    changed = {
        name
        for name in wanted.model_fields_set
        if _comparable(getattr(wanted, name)) != _comparable(getattr(stored, name))
    }
    return model.model_construct(_fields_set=changed, **{name: getattr(wanted, name) for name in changed})


def _comparable(value: object) -> object:
    if isinstance(value, str):
        # What browsers send has these line ends only.
        return value.replace("\r\n", "\n")
    # Choices that are ticked have no order.
    return frozenset(cast(Sequence[object], value)) if isinstance(value, list | tuple) else value


def _field(item: Mapping[str, object]) -> str:
    return str(item.get("field") or "").removeprefix("body.")
