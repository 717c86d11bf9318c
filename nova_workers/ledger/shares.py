"""Shares of a pool's connections: no tenant's requests hold all of them.

Whose request a task serves is not what its statements see (`visibility`): a block of a tenant's request may see all
tenants, and an operator's request is one of a tenant.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from weakref import WeakValueDictionary

_tenant: ContextVar[str | None] = ContextVar("tenant", default=None)


def working_for(tenant_id: str) -> None:
    """Count connections of the current task, and of those that it starts from now on, as a tenant's."""
    _tenant.set(tenant_id)


class Shares:
    """Counts the connections of each tenant; further requests of it wait in order."""

    def __init__(self, size: int, *, patience_s: float) -> None:
        """Take the size of a share, in connections, and how long one waits for it."""
        self._size = size
        self._patience_s = patience_s
        # A share is there as long as something holds it or waits for it.
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def take(self) -> asyncio.Semaphore | None:
        """Take one connection of the tenant's share, and return what releases it; None for work for no tenant.

        Raises:
            TimeoutError: The share was full all the time.
        """
        tenant_id = _tenant.get()
        if tenant_id is None:
            return None
        share = self._shares.get(tenant_id)
        if share is None:
            share = self._shares[tenant_id] = asyncio.Semaphore(self._size)
        if share.locked():
            async with asyncio.timeout(self._patience_s):
                await share.acquire()
        else:
            await share.acquire()
        return share
