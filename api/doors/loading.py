"""Loads the doors that NOVA_DOORS names. Of the others nothing is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, NamedTuple

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from nova_workers.base.vocabulary import DoorName
from nova_workers.contracts.bodies import Problem
from nova_workers.contracts.http.doors import DoorView

from ..errors import DoorNotInstalled

_log = structlog.get_logger(__name__)

_METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")


class Place(NamedTuple):
    """Where a door is."""

    prefix: str
    """The beginning of its paths. Every one of them needs a key."""
    extra: str | None
    """The extra of the package that has its SDK."""
    key_header: str | None = None
    """A header in which its clients send the key, beside ``Authorization``. In small letters."""


DOORS: Final[Mapping[DoorName, Place]] = {
    "a2a": Place("/a2a/", "a2a"),
    "ag-ui": Place("/ag-ui/", "ag-ui"),
    "langgraph": Place("/langgraph/", None, key_header="x-api-key"),
    "mcp": Place("/mcp", "mcp"),
    "openai": Place("/openai/v1/", None),
}


@dataclass(frozen=True, slots=True)
class LoadedDoor:
    """A door that the application serves.

    Attributes:
        name: Its name in NOVA_DOORS.
        error: Returns a problem in the form of its protocol, as JSON. None if the door could not be loaded.
    """

    name: DoorName
    prefix: str
    routes: Sequence[BaseRoute]
    error: Callable[[Problem], dict[str, Any]] | None
    key_header: str | None = None


def load_doors(names: Sequence[DoorName], places: Mapping[DoorName, Place] = DOORS) -> tuple[LoadedDoor, ...]:
    """Import doors. One whose SDK is missing answers 501 to all requests."""
    return tuple(_load(name, places[name]) for name in dict.fromkeys(names))


def describe_doors(loaded: Sequence[LoadedDoor]) -> tuple[DoorView, ...]:
    """Return every door, open or not, by name."""
    opened = {door.name: door.error is not None for door in loaded}
    return tuple(
        DoorView(
            name=name,
            path=place.prefix.rstrip("/"),
            state="closed" if name not in opened else "open" if opened[name] else "not_installed",
            extra=place.extra,
        )
        for name, place in DOORS.items()
    )


def _load(name: DoorName, place: Place) -> LoadedDoor:
    try:
        module = import_module(f".{name.replace('-', '_')}", __package__)
    except ModuleNotFoundError as error:
        if place.extra is None or (error.name or "").startswith(f"{__package__}"):
            raise
        _log.warning("door.not_installed", door=name, extra=place.extra, missing=error.name)
        return LoadedDoor(name, place.prefix, [_closed(name, place)], None, place.key_header)
    return LoadedDoor(name, place.prefix, module.ROUTES, module.error_document, place.key_header)


def _closed(name: str, place: Place) -> Route:
    async def refuse(request: Request) -> Response:
        raise DoorNotInstalled(
            f"The door {name!r} needs the extra {place.extra!r}: the operator installs 'nova-workers[{place.extra}]' "
            "and restarts the API.",
            door=name,
            extra=place.extra,
        )

    return Route(place.prefix + "{path:path}", refuse, methods=_METHODS, include_in_schema=False)
