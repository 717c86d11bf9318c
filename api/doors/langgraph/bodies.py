"""What bodies of the protocol have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import JsonObject

from ...errors import NotOffered

_ModelT = TypeVar("_ModelT", bound=BaseModel)

MAX_LISTED: Final = 1_000
"""Most things of one list."""


class Read(BaseModel):
    """A request. Fields that the protocol does not describe are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


def has_metadata(metadata: Mapping[str, Any], wanted: JsonObject | None) -> bool:
    """Return whether metadata has all of the wanted values."""
    return all(name in metadata and metadata[name] == value for name, value in (wanted or {}).items())


def named_by(model: type[_ModelT], fields: Mapping[str, Any], names: Mapping[str, str]) -> _ModelT:
    """Return a value of the fleet's that a request gives.

    Args:
        model: The value's.
        fields: What it has.
        names: The protocol's names of fields, where they differ.

    Raises:
        InvalidInput: A field is beyond its bounds; names it as the protocol does.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "input"
        named = names.get(field, field)
        raise InvalidInput(f"{named}: {first['msg']}.", field=named) from error


def refuse_given(
    body: BaseModel, refused: Mapping[str, str], but: Iterable[object] = (None, False, "", [], {})
) -> None:
    """Refuse a request with a field that promises what the fleet does not do.

    Args:
        body: The request.
        refused: What to do instead, by the field.
        but: Values that ask for nothing.

    Raises:
        NotOffered: It has one.
    """
    nothing = list(but)
    for name, advice in refused.items():
        if getattr(body, name) not in nothing:
            raise NotOffered(f"{name}: {advice}", field=name)
