"""A notification without content: something that a channel names has changed, and its state is in the ledger."""

from __future__ import annotations

import asyncio

from nova_workers.domain.streams.rules.wire import LiveEvent


class Signal:
    """Notes that a channel carried a message, or may have: after each subscription the follower looks at the ledger."""

    def __init__(self) -> None:
        self._set = asyncio.Event()

    def push(self, events: list[LiveEvent]) -> None:
        """Note a message."""
        self._set.set()

    def resync(self) -> None:
        """Note that messages may have been missed."""
        self._set.set()

    async def wait(self) -> None:
        """Wait for the next notification."""
        await self._set.wait()
        self._set.clear()
