"""What an exception means that ended an attempt and that no code expected: an outage, or a defect."""

from __future__ import annotations

import asyncio
import traceback

from redis.exceptions import RedisError

from nova_workers.base.errors import Unavailable
from nova_workers.contracts.engine import EngineError

_SERVERS = frozenset({"postgres", "redis"})


def is_end_of_task(error: BaseException) -> bool:
    """Return whether the task itself ends: it is canceled or closed, or the process is interrupted.

    A cancellation that nothing asked this task for is a defect, such as one that leaves a library's cancel scope.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, GeneratorExit | KeyboardInterrupt)


def is_outage(error: BaseException) -> bool:
    """Return whether a server of ours did not answer: the run is sound, and continues when it does."""
    if isinstance(error, Unavailable):
        return error.fields.get("server") in _SERVERS
    return isinstance(error, RedisError)


def place_of(error: BaseException) -> str:
    """Return the type of an exception and the module and line that raised it, without its message: that may quote data.

    Of a group, those of its first exception.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    name = type(error).__name__
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return name
    frame, line = frames[-1]
    return f"{name} at {frame.f_globals.get('__name__', '?')}:{line}"


def defect_of(error: BaseException) -> EngineError:
    """Return the error of a run that such an exception ended twice."""
    return EngineError(
        "engine_error",
        f"An error in the fleet's own code ended the turn, twice ({place_of(error)}); the worker's log has the "
        "details. The thread continues with its next message.",
        retryable=False,
    )
