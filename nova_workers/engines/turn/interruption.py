"""Interrupts what a turn waits for as soon as the turn must stop.

A turn waits in two ways. A stop must interrupt a wait for the model, a tool or a timer. It must not interrupt a wait
for the caller (a commit), since it would then be unknown whether the commit happened. So only waits of the first kind
run inside a `section`; a stop at any other time takes effect at the next section or `check`.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from nova_workers.contracts.abort import AbortReason, AbortSignal


class TurnStopped(BaseException):
    """The turn must stop. Raised only inside the engine; its caller gets a result.

    Like a cancellation, it is not an `Exception`: code that catches errors of a vendor or a tool must not catch it.
    """

    def __init__(self, reason: AbortReason) -> None:
        super().__init__(reason)
        self.reason: AbortReason = reason


class Interruption:
    """Combines the reasons to stop a running turn: its abort signal, its deadline, and other limits (`time_out`).

    Use it as a context manager around the turn, in the turn's own task.
    """

    def __init__(self, abort: AbortSignal | None = None, timeout_s: float | None = None) -> None:
        self._abort = abort
        self._timeout_s = timeout_s
        self._reason: AbortReason | None = None
        self.overdue = "The turn took longer than its time limit."
        """The error message if the reason is ``timeout``; names the limit."""
        self.out_of_time = False
        """Whether the turn's own time limit stopped it."""
        self._section: _Section | None = None
        self._release: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        if self._abort is not None:
            self._release.append(self._abort.subscribe(self._stop))
        if self._timeout_s is not None:
            timer = asyncio.get_running_loop().call_later(self._timeout_s, self._on_deadline)
            self._release.append(timer.cancel)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for release in self._release:
            release()

    @property
    def requested(self) -> bool:
        """Whether the turn must stop."""
        return self._reason is not None

    def check(self) -> None:
        """Raise `TurnStopped` if the turn must stop."""
        if self._reason is not None:
            raise TurnStopped(self._reason)

    def time_out(self, message: str) -> None:
        """Stop the turn because it exceeded the limit that `message` names."""
        if self._reason is None:
            self.overdue = message
            self._stop("timeout")

    def _on_deadline(self) -> None:
        self.out_of_time = self._reason is None
        self.time_out("The turn took longer than its time limit.")

    def section(self) -> "_Section":
        """Return a context manager whose body a stop interrupts with `TurnStopped`.

        The body's current await is canceled. Sections do not nest.
        """
        return _Section(self)

    def enter(self, section: "_Section | None") -> None:
        """Make `section` the one that a stop interrupts. For sections only."""
        self._section = section

    def _stop(self, reason: AbortReason) -> None:
        if self._reason is None:
            self._reason = reason
            # The signal may be set inside the turn's own callbacks. If the task canceled itself there, the cancellation
            # would arrive at a later await, possibly outside the section. From a loop callback it arrives where the
            # task waits now.
            asyncio.get_running_loop().call_soon(self._cut)

    def _cut(self) -> None:
        if self._section is not None:
            self._section.cut()


class ReasoningClock:
    """Measures the time that the turn waits for the model, and stops the turn at the limit.

    All of it counts: the model's own time, pauses between retries, and waits for a rate limit. So a turn cannot wait
    for ever for a provider that is down. Tools have their own time limits and do not count.
    """

    def __init__(self, limit_s: float, interruption: Interruption) -> None:
        self._limit_s = limit_s
        self._interruption = interruption
        self._spent_s = 0.0

    @property
    def spent_ms(self) -> int:
        """The time counted so far."""
        return round(self._spent_s * 1000)

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


class _Section:
    """Like `asyncio.timeout`, but triggered by a stop instead of a clock."""

    __slots__ = ("_cancel_requests", "_cut", "_owner", "_task")

    def __init__(self, owner: Interruption) -> None:
        self._owner = owner
        self._task: asyncio.Task[object] | None = None
        self._cancel_requests = 0
        self._cut = False

    def cut(self) -> None:
        """Cancel the body's current await."""
        if self._task is not None:
            self._cut = True
            self._task.cancel()

    def __enter__(self) -> None:
        self._owner.check()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A turn runs in an asyncio task")
        self._task = task
        self._cancel_requests = task.cancelling()
        self._owner.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner.enter(None)
        if not self._cut or self._task is None:
            return
        # If the task was also canceled from outside, that cancellation must propagate.
        ours = self._task.uncancel() <= self._cancel_requests
        if error is not None and (ours or not isinstance(error, asyncio.CancelledError)):
            try:
                self._owner.check()
            except TurnStopped as stopped:
                raise stopped from error
