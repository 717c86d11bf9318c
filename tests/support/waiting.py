"""Waiting in tests: until a condition is true, as long as it must stay true, or for a time that passes at once."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

_T = TypeVar("_T")

_POLL_S = 0.01
_TURNS_OF_LOOP = 100
"""In which clients and servers of this process have exchanged what they had to say."""


async def until(
    condition: Callable[[], _T | Awaitable[_T]], what: str = "the condition", *, timeout_s: float = 60.0
) -> _T:
    """Wait until a condition is true, and return its value.

    Raises:
        AssertionError: It was not true in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (value := await _value(condition)):
        assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s for {what}"
        await asyncio.sleep(_POLL_S)
    return value


async def stays(condition: Callable[[], object | Awaitable[object]], *, for_s: float) -> None:
    """Check that a condition is true for a time: what must not happen has no event to wait for.

    Raises:
        AssertionError: It was not true all the time.
    """
    began_s = time.monotonic()
    while (past_s := time.monotonic() - began_s) < for_s:
        assert await _value(condition), f"it was no longer true after {past_s:.3f} s"
        await asyncio.sleep(_POLL_S)


async def pass_time(seconds: float) -> None:
    """Let what can go on in the running loop do so, and then move its clock: timers of that time end at once.

    A test of a time-out can then give what must come before it as much time as a busy machine needs.
    """
    loop = asyncio.get_running_loop()
    for _ in range(_TURNS_OF_LOOP):
        await asyncio.sleep(0)
    clock = loop.time
    loop.time = lambda: clock() + seconds


async def _value(condition: Callable[[], _T | Awaitable[_T]]) -> _T:
    value = condition()
    return cast(_T, await value if inspect.isawaitable(value) else value)
