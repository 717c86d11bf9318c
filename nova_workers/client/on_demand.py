"""Groups of calls that are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Generic, Self, TypeVar, overload

C = TypeVar("C")


class CallGroup(Generic[C]):
    """An attribute of a client: the calls of one resource, made at the first use.

    The groups and the bodies of all of their calls take half a second to import, and a program uses a few of them.

    Args:
        module: The name of the group's module below ``resources`` of the client's package.
        name: Its class there, which is made with the client's transport.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._class = name

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name
        self._package = owner.__module__.rpartition(".")[0]

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...

    @overload
    def __get__(self, client: object, owner: type) -> C: ...

    def __get__(self, client: Any, owner: type) -> Self | C:
        if client is None:
            return self
        module = import_module(f"{self._package}.resources.{self._module}")
        group: C = getattr(module, self._class)(client._transport)
        # Found before this descriptor from here on.
        vars(client)[self._attribute] = group
        return group
