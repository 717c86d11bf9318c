"""A Celery pool whose tasks are coroutines on the one event loop of the process.

Celery's pool of threads needs a thread for each task, which would hand a coroutine to the loop and wait for its end: a
stack, and three more switches between threads, each with a wait for the interpreter's lock
(docs/decisions/0004-one-loop-per-process.md). Here Celery's own thread hands the coroutine over.
"""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import structlog
from celery.concurrency.base import BasePool

from nova_workers.worker.loop import LoopThread

_log = structlog.get_logger(__name__)

delivered_on: Final[ContextVar[str]] = ContextVar("delivered_on")
"""The queue from which the current task's message came."""

_Callback = Callable[[tuple[int, object, float]], None]
"""Takes whether a task failed, its result or error, and how many seconds it took."""

_RESULT: Final = "None"
"""The result as events show it: our tasks return nothing."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """What Celery reads of a failure, for the event that Flower shows."""

    exception: BaseException
    traceback: str


class LoopPool(BasePool):
    """Runs tasks whose `run` is a coroutine function. What one raises is logged, and ends that task alone.

    How many run at once is bounded by the consumer, which fetches no message while as many as `limit` are unfinished.

    Attributes:
        on_end: Called on the loop after the end of a task, when its slot is free.
        takes_work: Returns whether the process can work. Until then the consumer fetches no message.
    """

    body_can_be_buffer = True
    signal_safe = False
    thread: LoopThread
    takes_work: Callable[[], bool]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.on_end: Callable[[], None] = _ignore
        self._tasks: set[asyncio.Task[None]] = set()

    def on_apply(self, *args: Any, **options: Any) -> None:
        """Begin a task. Called on Celery's thread, with what its tracer of tasks would get; returns at once."""
        _tracer, (name, _id, request, *_), *_ = args
        options["accept_callback"](os.getpid(), time.monotonic())
        self.thread.loop.call_soon_threadsafe(self._begin, name, request, options["callback"])

    def on_stop(self) -> None:
        """Wait until all tasks have ended. The drain makes them end, and its watchdog bounds the wait."""
        self.thread.call(self._ended())

    def _begin(self, name: str, request: Mapping[str, Any], callback: _Callback) -> None:
        task = asyncio.create_task(self._run(name, request, callback))
        # The loop itself keeps only weak references.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, name: str, request: Mapping[str, Any], callback: _Callback) -> None:
        app: Any = self.app
        began_s = time.monotonic()
        delivered_on.set(request["delivery_info"]["routing_key"])
        try:
            await app.tasks[name].run(**request["kwargs"])
        except (Exception, asyncio.CancelledError) as error:
            # The head of a task: its doorbell is rung again if there is work left.
            if isinstance(error, Exception):
                _log.exception("task.failed", task=name, **request["kwargs"])
            outcome = (1, _Failure(error, "".join(traceback.format_exception(error))), time.monotonic() - began_s)
        else:
            outcome = (0, _RESULT, time.monotonic() - began_s)
        try:
            callback(outcome)
        except Exception:
            # Celery acknowledges and reports here, on a connection that it may just have lost.
            _log.exception("task.not_reported", task=name, **request["kwargs"])
        finally:
            self.on_end()

    async def _ended(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _get_info(self) -> dict[str, Any]:
        return {**super()._get_info(), "tasks": len(self._tasks)}


def loop_pool(thread: LoopThread, *, takes_work: Callable[[], bool] | None = None) -> type[LoopPool]:
    """Return the class of a pool on a loop: Celery makes the instance."""
    members = {"thread": thread, "takes_work": staticmethod(takes_work or _always), "__module__": __name__}
    return type("LoopPool", (LoopPool,), members)


def _always() -> bool:
    return True


def _ignore() -> None:
    """Do nothing: no consumer waits for a slot."""
