"""Stops what a turn waits for, the moment the turn must stop.

A turn waits in two ways. Where it waits for the model, a tool or a timer, a stop must cut the wait short. Where
it waits for its caller (a commit), cutting short would leave in the dark whether the commit happened. So only the
former runs inside a `section`, and a stop that comes elsewhere takes effect at the next section's door.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from nova_workers.contracts.abort import AbortReason, AbortSignal

__all__ = ["Interruption", "ReasoningClock", "TurnStopped"]


class TurnStopped(BaseException):
    """The turn was told to stop. Raised inside the engine only; its caller sees a result.

    Not an `Exception`, as a cancellation is none: code that catches what a vendor or a tool raises must let it pass.
    """

    def __init__(self, reason: AbortReason) -> None:
        super().__init__(reason)
        self.reason: AbortReason = reason


class Interruption:
    """The two reasons to stop a turn in mid-flight, its abort signal and its deadline, as one.

    Use it as a context manager around the turn, on the turn's own task.
    """

    def __init__(self, abort: AbortSignal | None = None, timeout_s: float | None = None) -> None:
        self._abort = abort
        self._timeout_s = timeout_s
        self._reason: AbortReason | None = None
        self.overdue = "The turn took longer than its time limit."
        """Which limit it was, in words, where the reason is ``timeout``."""
        self.out_of_time = False
        """Whether it was the turn's own time limit."""
        self._section: _Section | None = None
        self._release: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        if self._abort is not None:
            self._release.append(self._abort.subscribe(self._stop))
        if self._timeout_s is not None:
            timer = asyncio.get_running_loop().call_later(self._timeout_s, self._run_out)
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
        """Stop the turn since it took too long for a limit, which `message` names."""
        if self._reason is None:
            self.overdue = message
            self._stop("timeout")

    def _run_out(self) -> None:
        self.out_of_time = self._reason is None
        self.time_out("The turn took longer than its time limit.")

    def section(self) -> "_Section":
        """Return a context manager whose body is cut short by a stop, with `TurnStopped`.

        What the body waits for is cancelled. Sections do not nest.
        """
        return _Section(self)

    def enter(self, section: "_Section | None") -> None:
        """Make `section` the one that a stop cuts short. For sections only."""
        self._section = section

    def _stop(self, reason: AbortReason) -> None:
        if self._reason is None:
            self._reason = reason
            # The signal may be pulled from inside the turn's own callbacks, where a task that cancels itself would
            # be hit at some later await, outside the section. Between two steps of the loop it is hit where it waits.
            asyncio.get_running_loop().call_soon(self._cut)

    def _cut(self) -> None:
        if self._section is not None:
            self._section.cut()


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


class _Section:
    """The pattern of `asyncio.timeout`, fired by a request in place of a clock."""

    __slots__ = ("_cancelling", "_cut", "_owner", "_task")

    def __init__(self, owner: Interruption) -> None:
        self._owner = owner
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._cut = False

    def cut(self) -> None:
        """Cancel what the body waits for."""
        if self._task is not None:
            self._cut = True
            self._task.cancel()

    def __enter__(self) -> None:
        self._owner.check()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A turn runs in an asyncio task")
        self._task = task
        self._cancelling = task.cancelling()
        self._owner.enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner.enter(None)
        if not self._cut or self._task is None:
            return
        # Somebody outside may have cancelled the task as well: then the cancellation is theirs, and goes on.
        ours = self._task.uncancel() <= self._cancelling
        if error is not None and (ours or not isinstance(error, asyncio.CancelledError)):
            try:
                self._owner.check()
            except TurnStopped as stopped:
                raise stopped from error
