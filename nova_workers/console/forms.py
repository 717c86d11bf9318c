"""Forms: what was typed, and what the API refused about it, field by field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import Request

from nova_workers.errors import InvalidInput, Rejected
from nova_workers.validation import place_of, problem_of

__all__ = ["Form", "build", "read_form"]

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
    """Return what a browser sent, without files: call ``await request.form()`` before, where a form may have some."""
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


def _field(item: Mapping[str, object]) -> str:
    return str(item.get("field") or "").removeprefix("body.")
