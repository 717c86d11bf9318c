"""Time as a value that is handed in, so that tests can own it."""

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What the code asks for time.

    Wall time dates rows and events; monotonic time measures leases and durations, since a wall
    clock may jump.
    """

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()
