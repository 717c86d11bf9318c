"""The signal that stops a running turn."""

import asyncio
from collections.abc import Callable
from typing import Literal

AbortReason = Literal["cancel", "interrupt", "drain", "lost", "timeout"]


class AbortSignal:
    """A one-way flag: the owner of a turn sets it, and the engine stops at once.

    Not thread-safe: set it on the loop that runs the engine. The first reason wins.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._reason: AbortReason | None = None
        self._listeners: list[Callable[[AbortReason], None]] = []

    @property
    def aborted(self) -> bool:
        """Whether the signal is set."""
        return self._event.is_set()

    @property
    def reason(self) -> AbortReason | None:
        """The reason, or None while the signal is not set."""
        return self._reason

    def abort(self, reason: AbortReason) -> None:
        """Set the signal. Later calls change nothing."""
        if self._reason is None:
            self._reason = reason
            self._event.set()
            for listener in tuple(self._listeners):
                listener(reason)

    def subscribe(self, listener: Callable[[AbortReason], None]) -> Callable[[], None]:
        """Call `listener` with the reason when the signal is set, or now if it is set already.

        The listener must return at once and must not raise.

        Returns:
            A function that removes the listener; calling it twice changes nothing.
        """
        self._listeners.append(listener)
        if self._reason is not None:
            listener(self._reason)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    async def wait(self) -> AbortReason:
        """Wait until the signal is set, and return the reason."""
        await self._event.wait()
        assert self._reason is not None  # noqa: S101 - set before the event is
        return self._reason
