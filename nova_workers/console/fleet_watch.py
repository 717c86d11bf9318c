"""Whether the fleet answers: asked once for all open pages of this process, and only while there are any."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import structlog

from nova_workers.base.errors import NovaError
from nova_workers.client.client import NovaClient

PATIENCE_S: Final = 1.2
PAUSE_S: Final = 0.5
"""With the patience, a fleet that hangs is noticed within 1.7 s, and one that refuses within 0.5 s: pages are to
show it within 2 s, of which a busy machine takes a part."""


class FleetWatch:
    """Asks the fleet, and tells all pages about changes.

    Args:
        ask: Returns whether the fleet answers. It may take `PATIENCE_S`.
    """

    def __init__(self, ask: Callable[[], Awaitable[bool]]) -> None:
        self._ask = ask
        self._answers = True
        self._changed = asyncio.Condition()
        self._pages = 0
        self._asking: asyncio.Task[None] | None = None

    async def changes(self) -> AsyncGenerator[bool]:
        """Yield False when the fleet does not answer, and True when it does again; nothing while it always does."""
        self._pages += 1
        if self._asking is None:
            self._asking = asyncio.create_task(self._keep_asking())
        shown = True
        try:
            while True:
                async with self._changed:
                    while self._answers is shown:
                        await self._changed.wait()
                    shown = self._answers
                yield shown
        finally:
            self._pages -= 1
            if not self._pages:
                self._asking.cancel()
                self._asking, self._answers = None, True

    async def _keep_asking(self) -> None:
        while True:
            answers = await self._answer()
            if answers is not self._answers:
                async with self._changed:
                    self._answers = answers
                    self._changed.notify_all()
            await asyncio.sleep(PAUSE_S)

    async def _answer(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._ask()
        except TimeoutError:
            return False
        except Exception:
            structlog.get_logger().exception("console_watch_failed")
            return False


async def is_ready(client: NovaClient) -> bool:
    """Return whether the API answers and its database is there."""
    try:
        await client.readyz()
    except NovaError:
        return False
    return True
