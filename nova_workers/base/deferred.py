"""An object whose modules are imported at first use, in a process that serves already."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from nova_workers.base.errors import ConfigurationError
from nova_workers.base.program import importing

_log = structlog.get_logger(__name__)

T = TypeVar("T")

_ONE_AT_A_TIME = threading.Lock()
"""For the whole process, like its modules: of two threads that import modules which import each other, one may see an
unfinished one. It also guards `EngineParts.shared`."""


class Deferred(Generic[T]):
    """An object that is made once, in a thread. A failure is raised to all who wait, and the next use tries again."""

    def __init__(self, what: str, make: Callable[[], T]) -> None:
        self.made: T | None = None
        self._what = what
        self._make = make
        self._making: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the object.

        Raises:
            ConfigurationError: Its libraries cannot be imported, or its settings cannot be used.
        """
        if self.made is not None:
            return self.made
        making = self._making
        if making is None or making.done():
            making = asyncio.create_task(asyncio.to_thread(self.make), name=f"load {self._what}")
            self._making = making
        # A caller that is canceled does not stop the others from getting the object.
        return await asyncio.shield(making)

    def make(self) -> T:
        """Make the object in this thread, unless it is made. Blocks."""
        if self.made is not None:
            return self.made
        with _ONE_AT_A_TIME:
            if self.made is None:
                try:
                    with importing():
                        self.made = self._make()
                except ImportError as error:
                    _log.exception("libraries.not_loaded", what=self._what)
                    raise ConfigurationError(
                        f"The libraries of {self._what} cannot be imported: {error}. Install the package "
                        "'nova-workers' with its extras again, where this ran."
                    ) from error
            return self.made
