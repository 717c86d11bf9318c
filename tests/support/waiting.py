"""Waiting in tests: until a condition is true, as long as it must stay true, or for a time that passes at once."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

_T = TypeVar("_T")

_FIRST_POLL_S = 0.01
_LONGEST_POLL_S = 0.1
_GROWTH = 1.3
"""What a test waits for often costs requests and statements, on a machine that is busy with what it waits for."""

_STATEMENTS_S = 2.0
_TURNS_OF_LOOP = 100
"""In which clients and servers of this process have exchanged what they had to say."""


async def until(
    condition: Callable[[], _T | Awaitable[_T]], what: str = "the condition", *, timeout_s: float = 60.0
) -> _T:
    """Wait until a condition is true, and return its value.

    Raises:
        AssertionError: It was not true in time.
    """
    deadline_s, poll_s = time.monotonic() + timeout_s, _FIRST_POLL_S
    while not (value := await _value(condition)):
        assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s for {what}"
        await asyncio.sleep(poll_s)
        poll_s = min(poll_s * _GROWTH, _LONGEST_POLL_S)
    return value


async def stays(condition: Callable[[], object | Awaitable[object]], *, for_s: float) -> None:
    """Check that a condition is true for a time: what must not happen has no event to wait for.

    Raises:
        AssertionError: It was not true all the time.
    """
    began_s = time.monotonic()
    while (past_s := time.monotonic() - began_s) < for_s:
        assert await _value(condition), f"it was no longer true after {past_s:.3f} s"
        await asyncio.sleep(_FIRST_POLL_S)


async def pass_time(seconds: float) -> None:
    """Let what can go on in the running loop do so, and then move its clock: timers of that time end at once.

    A test of a time-out can then give what must come before it as much time as a busy machine needs. Statements that
    Postgres executes have their time-outs on the same clock, and so are waited for, if they end soon.
    """
    loop = asyncio.get_running_loop()
    for _ in range(_TURNS_OF_LOOP):
        await asyncio.sleep(0)
    with contextlib.suppress(AssertionError):
        await until(lambda: not _statements(loop), timeout_s=_STATEMENTS_S)
    clock = loop.time
    loop.time = lambda: clock() + seconds


def _statements(loop: asyncio.AbstractEventLoop) -> int:
    """Count the statements of asyncpg that have neither ended nor timed out."""
    timers = cast(list[asyncio.TimerHandle], getattr(loop, "_scheduled", ()))
    owners = (getattr(getattr(timer, "_callback", None), "__self__", None) for timer in timers if not timer.cancelled())
    return sum(type(owner).__module__.startswith("asyncpg") for owner in owners)


async def _value(condition: Callable[[], _T | Awaitable[_T]]) -> _T:
    value = condition()
    return cast(_T, await value if inspect.isawaitable(value) else value)
