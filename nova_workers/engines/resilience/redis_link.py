"""Optional requests to Redis: with a time limit, and a pause after a failure."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from redis.exceptions import RedisError

_log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class RedisLink:
    """Sends requests to Redis unless the last one failed recently."""

    def __init__(self, *, timeout_s: float, away_s: float, clock: Callable[[], float], purpose: str) -> None:
        """Take the limits.

        Args:
            timeout_s: Longest wait for an answer.
            away_s: How long no request is sent after a failed one.
            clock: Monotonic, in seconds.
            purpose: The state that is not shared meanwhile, for the log.
        """
        self._timeout_s = timeout_s
        self._away_s = away_s
        self._clock = clock
        self._purpose = purpose
        self._away_until_s = 0.0

    async def ask(self, question: Callable[[], Awaitable[_T]]) -> tuple[_T] | None:
        """Return the answer in a tuple, or None if Redis is unavailable."""
        if self._clock() < self._away_until_s:
            return None
        answer: tuple[_T] | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = (await question(),)
        except (RedisError, TimeoutError, OSError) as error:
            self._away_until_s = self._clock() + self._away_s
            _log.warning(
                "redis_not_asked", outage="redis", purpose=self._purpose, error=f"{type(error).__name__}: {error}"
            )
        _raise_lost_cancellation()
        return answer


def _raise_lost_cancellation() -> None:
    """Raise a cancellation that the client lost.

    The client writes under `asyncio.wait_for`, which before Python 3.12 swallows a cancellation that arrives just when
    its awaitable completes (measured: one abort in a few hundred). The turn would miss its abort.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
