"""Executes calls of tools in the process of a project, so that none can stop another.

A plain function has a thread for itself until it returns, since Python cannot end one: no call waits for another's. A
thread that is free takes the next call, for to start one costs more than most steps. Async functions share an event
loop, as their clients do; it is not the loop that reads and writes messages. A function that blocks it gets an error at
its time limit, and the calls after it a new loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Literal, TypeAlias

from nova_workers.base.errors import NovaError, ToolFailure
from nova_workers.base.user_code import is_users, place_of_thread, raised_at, user_place
from nova_workers.contracts.content import JsonObject
from nova_workers.sdk.context import Asked, ToolContext
from nova_workers.sdk.loading import UserTool

_MAX_CALLS: Final = 64
"""Calls at once in one process; others wait."""
_BLOCKED_AFTER_S: Final = 0.5
"""A loop on which a call does not begin for this long is blocked."""
_CANCEL_S: Final = 1.0
"""The time of an async function to end after it was canceled."""


_Settle = Callable[[], object]
"""Passes the result of a call to its caller."""


class _Ended(Exception):
    """A function raised what would end its thread or its loop."""


class Execution:
    """Executes the calls of one process. Used on one event loop, but for `begin`."""

    def __init__(self) -> None:
        self._calls = asyncio.Semaphore(_MAX_CALLS)
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._loop: UserLoop | None = None
        self._threads = _Threads()
        self._places = threading.Semaphore(_MAX_CALLS)
        self.stuck = 0
        """Calls that did not end at their time limit."""

    async def call(self, tool: UserTool, given: JsonObject, context: ToolContext) -> Any:
        """Return the value that a tool returns.

        Raises:
            ToolFailure: It failed; the message has the place in the code of users.
            Asked: It asks a person.
        """
        limit = tool.options.concurrency
        own = self._limits.setdefault(tool.name, asyncio.Semaphore(limit)) if limit is not None else None
        async with self._calls:
            if own is None:
                return await self._call(tool, given, context)
            async with own:
                return await self._call(tool, given, context)

    def begin(self, tool: UserTool, loop: UserLoop) -> Begun | None:
        """Begin a call without input, from an event loop of async functions; `wait_for` returns its value.

        For calls that are mostly shorter than the way over the other loop and back.

        Returns:
            None if too many were begun so and have not ended.
        """
        if not self._places.acquire(blocking=False):
            return None
        begun: Begun = (
            _OnLoop.here(loop, tool.function) if tool.is_async else _InThread(self._threads, tool, arguments={})
        )
        begun.future.add_done_callback(lambda _: self._places.release())
        return begun

    async def wait_for(self, begun: Begun, tool: UserTool, context: ToolContext) -> Any:
        """Return the value of a call that has begun. Raises as `call`."""
        if not begun.future.done():
            ended = asyncio.wrap_future(begun.future)
            try:
                done, _ = await asyncio.wait({ended}, timeout=tool.options.timeout_s)
                if not done:
                    raise await self._late(tool, begun, context)
            except asyncio.CancelledError:
                context.abort()
                begun.cancel()
                raise
            if not ended.cancelled():
                # The loop reports an exception that is never looked at here.
                ended.exception()
        try:
            return begun.future.result()
        except (ToolFailure, Asked):
            raise
        except BaseException as error:
            # The head of a call: a function may raise anything, and the process goes on.
            raise _failure(tool, error) from error

    async def free_loop(self) -> UserLoop:
        """Return the event loop of async functions: another one if a function blocks it."""
        loop = self._loop = self._loop or UserLoop()
        beat = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop.loop))
        await asyncio.wait({beat}, timeout=_BLOCKED_AFTER_S)
        if not beat.done():
            beat.cancel()
            loop = self._loop = UserLoop()
        return loop

    async def _call(self, tool: UserTool, given: JsonObject, context: ToolContext) -> Any:
        arguments = tool.arguments(given, context)
        begun = await self._on_loop(tool, arguments) if tool.is_async else _InThread(self._threads, tool, arguments)
        return await self.wait_for(begun, tool, context)

    async def _late(self, tool: UserTool, begun: Begun, context: ToolContext) -> ToolFailure:
        place = begun.place()
        context.abort()
        begun.cancel()
        ended = asyncio.wrap_future(begun.future)
        await asyncio.wait({ended}, timeout=_CANCEL_S)
        if not ended.done() or begun.blocks:
            self.stuck += 1
        elif not ended.cancelled():
            ended.exception()
        where = f" It was at {place}." if place else ""
        return ToolFailure(
            f"{tool.name} did not end within its time limit of {tool.options.timeout_s:g} s, so it was stopped.{where} "
            "Whether it had an effect is not known."
        )

    async def _on_loop(self, tool: UserTool, arguments: dict[str, Any]) -> _OnLoop:
        for _ in range(2):
            loop = self._loop = self._loop or UserLoop()
            begun = await _OnLoop.within(loop, partial(tool.function, **arguments), _BLOCKED_AFTER_S)
            if begun is not None:
                return begun
            self._loop = None
        raise ToolFailure(f"{tool.name} was not called: this process is too busy. Try again later.")


class _Threads:
    """Threads for plain functions. There are as many as functions were executed at once."""

    def __init__(self) -> None:
        self._free: deque[_Thread] = deque()

    def execute(self, function: Callable[[], _Settle], name: str) -> _Thread:
        """Call a function in a thread that executes no other; then, when the thread is free, what it returns."""
        try:
            thread = self._free.popleft()
        except IndexError:
            thread = _Thread(self._free)
        thread.take(function, name)
        return thread


class _Thread:
    def __init__(self, free: deque[_Thread]) -> None:
        self._free = free
        self._calls: SimpleQueue[tuple[Callable[[], _Settle], str]] = SimpleQueue()
        # A daemon: the process does not wait for it at its end.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self, function: Callable[[], _Settle], name: str) -> None:
        self._calls.put((function, name))

    def place(self) -> str | None:
        """Return where it is now."""
        return place_of_thread(self._thread.ident)

    def _run(self) -> None:
        process = os.getpid()
        while True:
            function, self._thread.name = self._calls.get()
            # As in a new thread: a function does not see the context variables of the one before.
            settle = contextvars.Context().run(function)
            if os.getpid() != process:
                # A fork has this thread only, and ends with it.
                return
            # First, so that the call after this one finds it.
            self._free.append(self)
            settle()
            del function, settle


class _InThread:
    """A call of a plain function."""

    blocks = False

    def __init__(self, threads: _Threads, tool: UserTool, arguments: dict[str, Any]) -> None:
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._call = tool.function, arguments
        self._thread = threads.execute(self._run, f"tool-{tool.name}")

    def cancel(self) -> None:
        """Do nothing: the function looks at `ToolContext.aborted`, or goes on."""

    def place(self) -> str | None:
        """Return where it is now."""
        return self._thread.place()

    def _run(self) -> _Settle:
        function, arguments = self._call
        # From here on it cannot be canceled, so that it takes a result.
        if not self.future.set_running_or_notify_cancel():
            return partial(bool)
        try:
            result = function(**arguments)
        except BaseException as error:
            # Passed to the caller, whatever it is.
            return partial(self.future.set_exception, error if isinstance(error, Exception | Asked) else _ended(error))
        return partial(self.future.set_result, result)


class _OnLoop:
    """A call of an async function."""

    def __init__(self, loop: UserLoop, function: Callable[[], Awaitable[Any]]) -> None:
        self._loop = loop
        self._function = function
        self._calling: Awaitable[Any] | None = None
        self._changing = threading.Lock()
        self._state: Literal["waits", "begun", "dropped"] = "waits"
        self._task: asyncio.Task[None] | None = None
        self._is_canceled = False
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    @classmethod
    def here(cls, loop: UserLoop, function: Callable[[], Awaitable[Any]]) -> _OnLoop:
        """Begin a call on the loop that executes this."""
        call = cls(loop, function)
        call._begin()
        return call

    @classmethod
    async def within(cls, loop: UserLoop, function: Callable[[], Awaitable[Any]], within_s: float) -> _OnLoop | None:
        """Begin a call on another loop. Return None if it did not begin in time; then it never will."""
        call = cls(loop, function)
        here, begun = asyncio.get_running_loop(), asyncio.Event()

        def begin() -> None:
            if call._begin():
                here.call_soon_threadsafe(begun.set)

        loop.loop.call_soon_threadsafe(begin)
        try:
            async with asyncio.timeout(within_s):
                await begun.wait()
        except TimeoutError:
            return None if call._drop() else call
        except asyncio.CancelledError:
            if not call._drop():
                call.cancel()
            raise
        return call

    @property
    def blocks(self) -> bool:
        """Whether its loop does nothing else meanwhile."""
        return self._loop.is_blocked

    def cancel(self) -> None:
        """Cancel it; a function that blocks its loop does not notice."""
        self._is_canceled = True
        if self._task is not None:
            self._loop.loop.call_soon_threadsafe(self._task.cancel)

    def place(self) -> str | None:
        """Return where it is now: where it waits, or where its loop is blocked."""
        if self._loop.is_blocked:
            return self._loop.place()
        # The task knows the outermost coroutine only, and a frame of one that waits has no caller.
        place = None
        inner: Any = self._calling
        while (frame := getattr(inner, "cr_frame", None)) is not None:
            place = user_place(frame) if place is None or is_users(frame.f_code.co_filename) else place
            inner = inner.cr_await
        return place

    def _begin(self) -> bool:
        """Begin it on the loop that executes this, unless it was dropped."""
        with self._changing:
            if self._state == "dropped":
                return False
            self._state = "begun"
        # As in a thread of its own: a function does not see the context variables of another.
        self._task = self._loop.loop.create_task(self._run(), context=contextvars.Context())
        return True

    def _drop(self) -> bool:
        """Let it never begin, unless it has."""
        with self._changing:
            if self._state == "begun":
                return False
            self._state = "dropped"
        return True

    async def _run(self) -> None:
        try:
            self._calling = self._function()
            value = await self._calling
        except BaseException as error:
            if self._is_canceled and isinstance(error, asyncio.CancelledError):
                self.future.cancel()
                return
            # Passed to the caller, whatever it is.
            self.future.set_exception(error if isinstance(error, Exception | Asked) else _ended(error))
        else:
            self.future.set_result(value)


Begun: TypeAlias = _InThread | _OnLoop
"""A call that has begun."""


class UserLoop:
    """An event loop in a thread, for async functions of users."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tools-async", daemon=True)
        self._thread.start()

    @property
    def is_blocked(self) -> bool:
        """Whether something on it does not return to it. Waits for a tenth of a second at most."""
        beat = threading.Event()
        self.loop.call_soon_threadsafe(beat.set)
        return not beat.wait(0.1)

    def place(self) -> str | None:
        """Return where its thread is now."""
        return place_of_thread(self._thread.ident)

    def _run(self) -> None:
        while True:
            try:
                self.loop.run_forever()
            except BaseException:
                # A task that a tool started may raise SystemExit; the other tools go on.
                traceback.print_exc()


def _ended(error: BaseException) -> _Ended:
    ended = _Ended(f"it tried to end the process ({type(error).__name__})")
    ended.__traceback__ = error.__traceback__
    return ended


def _failure(tool: UserTool, error: BaseException) -> ToolFailure:
    if isinstance(error, NovaError):
        return ToolFailure(error.message)
    traceback.print_exception(error)
    place = raised_at(error)
    what = str(error) if isinstance(error, _Ended) else f"{type(error).__name__}: {error}"
    return ToolFailure(f"{tool.name} failed: {what}" + (f" (at {place})" if place else ""))
