"""Questions to Redis that may go unanswered: bounded in time, and not asked again at once when it is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from redis.exceptions import RedisError

__all__ = ["RedisLink"]

_log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class RedisLink:
    """Whether Redis is there, as far as the last question showed."""

    def __init__(self, *, timeout_s: float, away_s: float, clock: Callable[[], float], purpose: str) -> None:
        """Take the bounds.

        Args:
            timeout_s: Longest wait for an answer.
            away_s: How long nothing is asked after a question that failed.
            clock: Monotonic, in seconds.
            purpose: What cannot be shared meanwhile, for the log.
        """
        self._timeout_s = timeout_s
        self._away_s = away_s
        self._clock = clock
        self._purpose = purpose
        self._away_until_s = 0.0

    async def ask(self, question: Callable[[], Awaitable[_T]]) -> tuple[_T] | None:
        """Return the answer in a tuple, or None when Redis is away."""
        if self._clock() < self._away_until_s:
            return None
        answer: tuple[_T] | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = (await question(),)
        except (RedisError, TimeoutError, OSError) as error:
            self._away_until_s = self._clock() + self._away_s
            _log.warning("redis_not_asked", purpose=self._purpose, error=f"{type(error).__name__}: {error}")
        _heed_cancellation()
        return answer


def _heed_cancellation() -> None:
    """Raise a cancellation that the client lost.

    It writes under `asyncio.wait_for`, which before Python 3.12 swallows a cancellation that comes in the moment in
    which what it waits for is done (measured: one abort in a few hundred). The turn would not hear of its abort.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
