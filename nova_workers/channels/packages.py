"""Inbound channels of installed packages: how one is found, imported and checked."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Any, Final, cast

from nova_workers.base.entry_points import entry_points_of
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.user_code import ending_late_imports, import_code, raised_at, served_module
from nova_workers.channels.port import InboundChannel, Rests, SentMessages, UnreportedRests

INBOUND_GROUP: Final = "nova_workers.inbound_channels"
"""The entry-point group: each entry is a function from `InboundParts` to a channel."""

_IMPORT_TIMEOUT_S: Final = 60.0
_EXIT_PROBLEM: Final = 1
_METHODS: Final = {"updates": (), "deliver": ("reply",), "done": ("update",), "close": ()}
_OF_THE_FLEET: Final = "NOVA_"


@dataclass(frozen=True, slots=True)
class InboundParts:
    """What a channel of a package is made of.

    Attributes:
        name: The channel's own, which it must have.
        environment: The variables of its process, without those of the fleet: its tokens and addresses.
        messages: Remembers which of its messages show a reply, also for the process after this one.
        rests: Reports pauses after failures to the fleet.
    """

    name: str
    environment: Mapping[str, str]
    messages: SentMessages
    rests: Rests = field(default_factory=UnreportedRests)


MakeChannel = Callable[[InboundParts], InboundChannel]


def own_environment() -> dict[str, str]:
    """Return the variables of this process without those of the fleet, such as its key."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_OF_THE_FLEET)}


def find_channel(name: str) -> MakeChannel:
    """Return the function that makes a channel. An import that does not end, ends the process.

    Args:
        name: Of the entry point.

    Raises:
        ConfigurationError: No package has it, several have, its module cannot be imported, or it is no such function.
            The message has file and line where there are any.
    """
    entries = entry_points_of(INBOUND_GROUP)
    found = {entry.value: entry for entry in entries if entry.name == name}
    if not found:
        known = ", ".join(sorted({entry.name for entry in entries})) or "none"
        raise ConfigurationError(
            f"No package names the channel {name!r} in the entry-point group {INBOUND_GROUP!r}; there are: {known}. "
            "Install the package beside this program."
        )
    if len(found) > 1:
        packages = " and ".join(sorted(f"{entry.value!r} of {_package(entry)}" for entry in found.values()))
        raise ConfigurationError(
            f"{packages} have the same name {name!r} in the entry-point group {INBOUND_GROUP!r}. Uninstall one."
        )
    (entry,) = found.values()
    with ending_late_imports(entry.module, _IMPORT_TIMEOUT_S, _end):
        made: Any = import_code(served_module(entry.module))
    for part in entry.attr.split("."):
        made = getattr(made, part, None)
    if not callable(made) or not _takes(made, 1):
        raise ConfigurationError(
            f"{_place(made) or entry.value}: {entry.value!r}, the channel {name!r}, is no function that takes an "
            "InboundParts; expected 'def channel(parts: InboundParts) -> InboundChannel'."
        )
    return cast("MakeChannel", made)


def make_channel(make: MakeChannel, parts: InboundParts) -> InboundChannel:
    """Return the channel that a package's function makes.

    Raises:
        ConfigurationError: It fails, or what it returns is no channel of that name.
    """
    try:
        channel = make(parts)
    except ConfigurationError:
        raise
    except Exception as error:
        # Code of a package may raise anything.
        place = raised_at(error) or _place(make)
        raise ConfigurationError(f"{place}: the channel {parts.name!r}: {type(error).__name__}: {error}") from error
    check_channel(channel, parts.name)
    return channel


def check_channel(channel: Any, name: str) -> None:
    """Check the form of a channel.

    Raises:
        ConfigurationError: It has another form than `InboundChannel`; the message says in what.
    """
    where = f"{_place(type(channel)) or type(channel).__name__}: the channel {name!r}"
    expected = {"name": str, "streams": bool, "max_file_bytes": int}
    for attribute, kind in expected.items():
        if not isinstance(getattr(channel, attribute, None), kind):
            raise ConfigurationError(f"{where} has no {attribute!r} of the type {kind.__name__}.")
    if channel.name != name:
        raise ConfigurationError(f"{where} is called {channel.name!r}; expected the name of its InboundParts.")
    for method, parameters in _METHODS.items():
        function = getattr(channel, method, None)
        if not callable(function) or not _takes(function, len(parameters)):
            raise ConfigurationError(f"{where} has no method {method}({', '.join(parameters)}).")
        if inspect.iscoroutinefunction(function) == (method == "updates"):
            form = "an async generator" if method == "updates" else f"'async def {method}'"
            raise ConfigurationError(f"{_place(function) or where}: {method} of the channel {name!r} must be {form}.")


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def _place(thing: Any) -> str | None:
    try:
        file, line = inspect.getsourcefile(thing), inspect.getsourcelines(thing)[1]
    except (TypeError, OSError):
        return None
    return f"{file}:{line}"


def _package(entry: EntryPoint) -> str:
    return "a package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _end(problem: str) -> None:
    sys.stderr.write(f"nova: {problem}\n")
    sys.stderr.flush()
    os._exit(_EXIT_PROBLEM)
