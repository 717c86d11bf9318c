"""Suspect runs of a worker: each executes in a child process of its own, so that it harms no other run.

The child (`nova_workers.worker.single_run`) is a worker for one run: it claims, renews, journals and ends it as any
worker does, with a session of its own. This side starts it, and drains it.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

import orjson
import structlog

from nova_workers.contracts.ports import Dispatcher
from nova_workers.contracts.runs import Doorbell
from nova_workers.observability.metrics import Metrics

__all__ = ["MAKE_WAY", "MOST_CHILDREN", "SingleRun", "SingleRunProcess", "SuspectRuns"]

_log = structlog.get_logger(__name__)

MOST_CHILDREN: Final = 2
"""Child processes of a worker at once. Each takes about as much memory as a worker, and a core while it starts."""

MAKE_WAY: Final = b"make way\n"
"""The line on the child's standard input that asks it to requeue its run once that is suspect no more."""

_PROGRAM: Final = ("nova_workers.devstack.run_module", "nova_workers.worker.single_run")
"""By name, as whatever starts processes of the fleet: it is above this room."""


class SingleRun(Protocol):
    """A child process that executes one run."""

    def make_way(self) -> None:
        """Ask it to requeue its run after the first step that clears the run. Returns at once."""
        ...

    def drain(self) -> None:
        """Ask it to drain, as a worker does on SIGTERM. Returns at once."""
        ...

    async def ended(self) -> int:
        """Wait for its end, and return its exit code; that of a signal is negative."""
        ...


class SingleRunProcess:
    """The child process, which reads its standard input: the doorbell, `MAKE_WAY`, and its end, which begins the drain.

    So it also drains when this process is killed, and needs no signal that the kernel would send for the end of the
    thread that started it.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, bell: Doorbell) -> SingleRunProcess:
        """Start the child for the next run of the doorbell's thread.

        Raises:
            OSError: The machine has no process or memory left.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *_PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            # What ends this process and its group, such as a supervisor that restarts it, is not the fault of the run.
            start_new_session=True,
        )
        child = cls(process)
        child._write(orjson.dumps([bell.run_id, bell.thread_id, bell.queue]) + b"\n")
        return child

    def make_way(self) -> None:
        """Ask it to requeue its run after the first step that clears the run. Returns at once."""
        self._write(MAKE_WAY)

    def drain(self) -> None:
        """Ask it to drain, as a worker does on SIGTERM. Returns at once."""
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        self._process.stdin.close()

    async def ended(self) -> int:
        """Wait for its end, and return its exit code; that of a signal is negative."""
        return await self._process.wait()

    def _write(self, line: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - it was started with a pipe
        if not stdin.is_closing():
            stdin.write(line)


class SuspectRuns:
    """Executes suspect runs, at most `MOST_CHILDREN` at a time; the doorbells of further ones wait here, in no slot.

    If this process ends, the reconciler rings for them again, as for any queued run.
    """

    def __init__(
        self, start: Callable[[Doorbell], Awaitable[SingleRun]], dispatcher: Dispatcher, metrics: Metrics
    ) -> None:
        self._start = start
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._waiting: dict[str, Doorbell] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._children: dict[str, SingleRun] = {}
        self._draining = False

    @property
    def thread_ids(self) -> frozenset[str]:
        """Threads whose next run executes in a child, or waits for one."""
        return frozenset(self._waiting) | frozenset(self._tasks)

    @property
    def executing(self) -> int:
        """How many children there are."""
        return len(self._tasks)

    def execute(self, bell: Doorbell) -> None:
        """Execute the next run of a thread in a child, as soon as there may be another one. Returns at once."""
        if self._draining:
            self._dispatcher.ring_runs([bell])
            return
        if bell.thread_id in self._tasks:
            # Its child takes the run. A child that just ended without it is seen to end before others may recover it.
            return
        self._waiting.setdefault(bell.thread_id, bell)
        self._begin()

    def drain(self) -> None:
        """Start no more children, drain those that there are, and pass on the doorbells that wait."""
        self._draining = True
        self._dispatcher.ring_runs([*self._waiting.values()])
        self._waiting.clear()
        for child in self._children.values():
            child.drain()

    async def ended(self) -> None:
        """Wait for the end of all children."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def _begin(self) -> None:
        for thread_id in [*self._waiting][: MOST_CHILDREN - len(self._tasks)]:
            task = asyncio.create_task(self._execute(self._waiting.pop(thread_id)), name="single_run")
            self._tasks[thread_id] = task
            task.add_done_callback(partial(self._on_end, thread_id))
        if self._waiting:
            for child in self._children.values():
                child.make_way()

    def _on_end(self, thread_id: str, _task: asyncio.Task[None]) -> None:
        self._children.pop(thread_id, None)
        del self._tasks[thread_id]
        self._begin()

    async def _execute(self, bell: Doorbell) -> None:
        try:
            child = await self._start(bell)
        except OSError as error:
            # For the reconciler, which rings again.
            _log.warning("suspect.not_started", run_id=bell.run_id, thread_id=bell.thread_id, error=str(error))
            return
        self._children[bell.thread_id] = child
        _log.info("suspect.started", run_id=bell.run_id, thread_id=bell.thread_id, children=len(self._children))
        if self._draining:
            child.drain()
        elif self._waiting:
            child.make_way()
        code = await child.ended()
        self._metrics.suspects.labels("lost" if code else "ended").inc()
        if code:
            _log.warning("suspect.lost", run_id=bell.run_id, thread_id=bell.thread_id, exit_code=code)
