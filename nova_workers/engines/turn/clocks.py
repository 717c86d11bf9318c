"""The time that a turn waits for its model, apart from the time of its tools."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from nova_workers.engines.turn.interruption import Interruption

__all__ = ["ReasoningClock"]


class ReasoningClock:
    """Runs while the turn waits for the model, and stops the turn when its limit is reached.

    All that a response takes counts: the model's own time, pauses between tries, and standing in line for a rate limit.
    So a turn cannot wait for ever for a provider that is down. Tools have a limit each, and do not count here.
    """

    def __init__(self, limit_s: float, interruption: Interruption) -> None:
        self._limit_s = limit_s
        self._interruption = interruption
        self._spent_s = 0.0

    @contextmanager
    def running(self) -> Generator[None]:
        """Count the time of the block."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        timer = loop.call_later(max(0.0, self._limit_s - self._spent_s), self._overdue)
        try:
            yield
        finally:
            timer.cancel()
            self._spent_s += loop.time() - started_s

    def _overdue(self) -> None:
        self._interruption.time_out(f"The turn waited for the model for more than {self._limit_s:g} s in all.")
