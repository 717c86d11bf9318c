"""Units of work: a transaction, and what follows its commit.

Above are the rules that change runs, waits and orchestrations: they say within the transaction what is to follow.
Below are the database, and the ports that bootstrap gives. What follows is done here, in one order, and only if the
commit is confirmed. From then on nothing fails the caller: what cannot be done is logged, and is the reconciler's. So
is what a process left undone that died after its commit.

A unit of work has three outcomes: it returns, and all of it is committed; it raises, and nothing is; or it raises
`OutcomeUnknown`, where the database did not confirm the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Self

import structlog

from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.ports import CancelNotifier, Dispatcher
from nova_workers.contracts.runs import CancelRequest, Doorbell
from nova_workers.ledger.database import Connection, Database
from nova_workers.stopping import stop_tasks

__all__ = ["UnitOfWork", "Work"]

_log = structlog.get_logger(__name__)

_PATIENCE_S: Final = 2.0
"""How long a caller waits for what follows. It goes on then, and the caller's change is committed anyway."""


class UnitOfWork:
    """A transaction, and what follows its commit. Use it as an async context manager, once.

    Attributes:
        connection: Of the transaction.
    """

    __slots__ = (
        "_bells",
        "_cancels",
        "_delivers",
        "_interrupts",
        "_news",
        "_orders",
        "_scope",
        "_work",
        "connection",
    )

    def __init__(self, work: Work, scope: AbstractAsyncContextManager[Connection]) -> None:
        self._work = work
        self._scope = scope
        self._bells: list[Doorbell] = []
        self._cancels: list[CancelRequest] = []
        self._interrupts: list[str] = []
        self._news: list[TreeNews] = []
        self._orders: list[str] = []
        self._delivers = False

    def ring(self, bells: Sequence[Doorbell]) -> None:
        """Ring for runs that were queued."""
        self._bells.extend(bells)

    def ring_deliveries(self) -> None:
        """Ring for deliveries that were added."""
        self._delivers = True

    def notify_order(self, order_id: str) -> None:
        """Notify the requests that wait for a work order, which has ended or needs a person."""
        self._orders.append(order_id)

    def cancel(self, requests: Sequence[CancelRequest]) -> None:
        """Apply cancel requests at once."""
        self._cancels.extend(requests)

    def interrupt(self, run_id: str) -> None:
        """Interrupt a run at once."""
        self._interrupts.append(run_id)

    def announce(self, news: TreeNews) -> None:
        """Publish what changed in an orchestration."""
        self._news.append(news)

    async def __aenter__(self) -> Self:
        self.connection = await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._scope.__aexit__(kind, error, trace)
        if error is None:
            await self._follow()

    async def _follow(self) -> None:
        dispatcher, notifier = self._work.dispatcher, self._work.notifier
        # News come before doorbells: a worker that answers one announces what its agent does next.
        if notifier is not None:
            for news in self._news:
                notifier.announce_tree(news)
            if self._interrupts:
                await self._work.settle(self._interrupt(notifier))
        if dispatcher is not None and self._bells:
            dispatcher.ring_runs(self._bells)
        if dispatcher is not None and self._delivers:
            dispatcher.ring_deliveries()
        if notifier is not None and self._orders:
            await self._work.settle(self._notify_orders(notifier))
        if notifier is not None and self._cancels:
            await self._work.settle(notifier.apply_requests(self._cancels))

    async def _notify_orders(self, notifier: CancelNotifier) -> None:
        for order_id in self._orders:
            await notifier.notify_order(order_id)

    async def _interrupt(self, notifier: CancelNotifier) -> None:
        for run_id in self._interrupts:
            await notifier.apply_interrupt(run_id)


class Work:
    """Begins units of work. One object per process.

    Attributes:
        database: The database, for what is only read.
        dispatcher: Rings for runs and deliveries.
        notifier: Applies cancel requests and interrupts, and publishes.
    """

    def __init__(
        self, database: Database, dispatcher: Dispatcher | None = None, notifier: CancelNotifier | None = None
    ) -> None:
        """Keep the ports. Without one, what it would do is left to the reconciler."""
        self.database = database
        self.dispatcher = dispatcher
        self.notifier = notifier
        self._open: set[asyncio.Task[None]] = set()

    def begin(self) -> UnitOfWork:
        """Begin a unit of work in a transaction.

        Raises:
            Unavailable: On entry or exit: the database fails, and nothing was written.
            OutcomeUnknown: On exit: the commit is not confirmed.
        """
        return UnitOfWork(self, self.database.transaction())

    def begin_statement(self) -> UnitOfWork:
        """Begin a unit of work whose one statement that writes commits by itself: a round trip instead of three."""
        return UnitOfWork(self, self.database.connection())

    async def settle(self, following: Coroutine[Any, Any, None]) -> None:
        """Do what may take a while after a commit. Never raises; the caller waits for a moment only."""
        task = asyncio.create_task(self._done(following), name="after-commit")
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        done, _ = await asyncio.wait({task}, timeout=_PATIENCE_S)
        for ended in done:
            # What is no `Exception` ends the process, or its loop.
            ended.result()

    async def close(self) -> None:
        """Stop what still follows."""
        await stop_tasks(list(self._open))

    async def _done(self, following: Coroutine[Any, Any, None]) -> None:
        try:
            await following
        except Exception:
            # The head of what follows a commit: the reconciler does the rest.
            _log.exception("work.not_followed")
