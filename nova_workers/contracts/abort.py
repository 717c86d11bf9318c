"""How a running turn is told to stop."""

import asyncio
from collections.abc import Callable
from typing import Literal

__all__ = ["AbortReason", "AbortSignal"]

AbortReason = Literal["cancel", "interrupt", "drain", "lost", "timeout"]


class AbortSignal:
    """A one-way switch: the owner of a turn pulls it, the engine obeys at once.

    Not thread-safe: pull it on the loop that runs the engine. The first reason stays.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._reason: AbortReason | None = None
        self._listeners: list[Callable[[AbortReason], None]] = []

    @property
    def aborted(self) -> bool:
        """Whether the switch was pulled."""
        return self._event.is_set()

    @property
    def reason(self) -> AbortReason | None:
        """Why, or None as long as nobody pulled it."""
        return self._reason

    def abort(self, reason: AbortReason) -> None:
        """Pull the switch. Pulling it again changes nothing."""
        if self._reason is None:
            self._reason = reason
            self._event.set()
            for listener in tuple(self._listeners):
                listener(reason)

    def subscribe(self, listener: Callable[[AbortReason], None]) -> Callable[[], None]:
        """Call `listener` with the reason when the switch is pulled, or now if it was.

        The listener must return at once and must not raise.

        Returns:
            What takes the listener away again; calling it twice changes nothing.
        """
        self._listeners.append(listener)
        if self._reason is not None:
            listener(self._reason)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    async def wait(self) -> AbortReason:
        """Wait until the switch is pulled, and return why."""
        await self._event.wait()
        assert self._reason is not None  # noqa: S101 - set before the event is
        return self._reason
