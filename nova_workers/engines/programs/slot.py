"""The right of a turn to have programs running."""

import asyncio


class Slot:
    """One of an engine's slots for one turn.

    The programs of its subagents need none of their own: they would wait for the turn that waits for them.
    """

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._holds = False
        self._taking = asyncio.Lock()

    async def take(self) -> None:
        """Wait for a slot, unless the turn has one."""
        async with self._taking:
            if not self._holds:
                await self._slots.acquire()
                self._holds = True

    def release(self) -> None:
        """Give the slot to another turn."""
        if self._holds:
            self._holds = False
            self._slots.release()
