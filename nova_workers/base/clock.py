"""Time as a value that is handed in, so that tests can own it, and durations as people read them."""

import time
from datetime import UTC, datetime
from typing import Protocol

_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
"""Seconds and name of each unit, and those of the one below it."""


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


def spell_duration(seconds: float) -> str:
    """Return a duration with two units at most: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``, ``4 d 3 h``."""
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    for unit, name, part, part_name in _UNITS:
        # Rounded to the lower unit first: 119.6 s are 2 min.
        whole = round(seconds / part) * part
        if whole >= unit:
            rest = whole % unit // part
            return f"{whole // unit} {name} {rest} {part_name}" if rest else f"{whole // unit} {name}"
    return f"{round(seconds)} s"
