"""Applications that many tests share, on a loop in a thread of its own: starting one takes longer than most tests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from threading import Thread
from typing import Any, TypeVar

from nova_workers.base.config import Settings
from nova_workers.ledger.database import PostgresDatabase
from tests.integration.api.manual_worker import Tenant, make_tenant

_Result = TypeVar("_Result")
_TIMEOUT_S = 60.0


class SharedServers:
    """Applications in a thread.

    Args:
        settings: Of the database and the Redis behind them.

    Attributes:
        database: A pool of the thread's.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = PostgresDatabase(settings.require_database_url(), pool_size=2)
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._thread = Thread(target=self._loop.run_forever, name="shared servers", daemon=True)

    def make_tenant(self) -> Tenant:
        """Make a tenant with the default agents and a key with every scope."""
        return self.wait(make_tenant(self.database))

    def enter(self, block: AbstractAsyncContextManager[_Result]) -> _Result:
        """Enter a block in the servers' thread, which ends with the servers; return what it gives."""
        return self.wait(self._stack.enter_async_context(block))

    def begin(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Begin some work in the servers' thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Do some work in the servers' thread, and return its result."""
        return self.begin(work).result(_TIMEOUT_S)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the applications, then the thread."""
        try:
            self.wait(self._stack.aclose())
            self.wait(self.database.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


@contextmanager
def shared_servers(settings: Settings) -> Generator[SharedServers]:
    """Give a thread for applications, which ends with the block."""
    servers = SharedServers(settings)
    servers.start()
    try:
        yield servers
    finally:
        servers.stop()
