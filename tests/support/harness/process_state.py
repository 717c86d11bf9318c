"""State of the test process that a test must leave as it was: later tests of the process run with it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Final

import structlog

_FOREIGN: Final = frozenset({"decimal_context"})
"""Variables that libraries set once and keep."""

_ENVIRONMENT: Final[Mapping[bytes, bytes]] = vars(os.environ)["_data"]
"""`os.environ` decodes each name and value, which takes 50 µs."""
_SETTINGS: Final = (b"NOVA_", b"ANTHROPIC_")
"""What our code reads; libraries add variables of their own when they are imported."""


def _context() -> dict[str, object]:
    # A name that structlog has unbound stays, as an ellipsis.
    values = ((var.name, value) for var, value in copy_context().items())
    return {name: value for name, value in values if value is not ... and name not in _FOREIGN}


_READERS: Final[Mapping[str, Callable[[], object]]] = {
    "context variables": _context,
    "environment": lambda: {name: value for name, value in _ENVIRONMENT.items() if name.startswith(_SETTINGS)},
    "working directory": os.getcwd,
    "handlers of exceptions": lambda: (sys.excepthook, threading.excepthook, sys.unraisablehook),
    "logging": lambda: (logging.root.level, logging.root.manager.disable, tuple(logging.root.handlers)),
    "structlog": structlog.get_config,
}
"""Each costs some microseconds, for each test."""


class ProcessState:
    """What the state was when it was last read."""

    def __init__(self) -> None:
        self._before = {name: read() for name, read in _READERS.items()}

    def changes(self) -> list[str]:
        """Return what has changed since the last call."""
        changes: list[str] = []
        for name, read in _READERS.items():
            before, now = self._before[name], read()
            if now != before:
                changes.append(f"{name}: {before!r}, now {now!r}")
                self._before[name] = now
        return changes
