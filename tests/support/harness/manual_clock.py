"""A clock that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.support.waiting import until


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self._now = datetime(2030, 1, 1, tzinfo=UTC)
        self._monotonic_s = 1_000.0
        self._reads = 0

    @property
    def reads(self) -> int:
        """How often the monotonic time was read."""
        return self._reads

    def now(self) -> datetime:
        """Return the wall time."""
        return self._now

    def monotonic_s(self) -> float:
        """Return the monotonic time."""
        self._reads += 1
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Move both."""
        self._now += timedelta(seconds=seconds)
        self._monotonic_s += seconds

    async def read_again(self, times: int = 3) -> None:
        """Wait until the code under test has read the monotonic time so often from now on, and acted on it."""
        reads = self._reads + times
        await until(lambda: self._reads >= reads, "the clock to be read")
