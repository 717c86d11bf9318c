"""What bodies of the protocol have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from nova_workers.contracts.content import JsonObject

from ...errors import NotOffered

MAX_LISTED: Final = 1_000
"""Most things of one list."""


class Read(BaseModel):
    """A request. Fields that the protocol does not describe are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


def has_metadata(metadata: Mapping[str, Any], wanted: JsonObject | None) -> bool:
    """Return whether metadata has all of the wanted values."""
    return all(name in metadata and metadata[name] == value for name, value in (wanted or {}).items())


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
