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
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Self

import structlog

from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.ports import CancelNotifier, Dispatcher
from nova_workers.contracts.runs import CancelRequest, Doorbell
from nova_workers.ledger.database import Connection, Database

_log = structlog.get_logger(__name__)

_PATIENCE_S: Final = 2.0
"""How long a caller waits for what follows. It goes on then, and the caller's change is committed anyway."""


class Consequences:
    """What follows a commit. What each part is for, `UnitOfWork` says."""

    __slots__ = ("bells", "cancels", "interrupts", "news", "orders", "published", "rings_deliveries", "rings_effects")

    def __init__(self) -> None:
        """Let nothing follow, so far."""
        self.published: list[Callable[[], None]] = []
        self.news: list[TreeNews] = []
        self.interrupts: list[str] = []
        self.bells: list[Doorbell] = []
        self.rings_effects = False
        self.rings_deliveries = False
        self.orders: list[str] = []
        self.cancels: list[CancelRequest] = []

    def __bool__(self) -> bool:
        """Return whether there is anything."""
        return any(getattr(self, each) for each in self.__slots__)

    def add(self, other: Consequences) -> None:
        """Let also follow what others are."""
        self.published += other.published
        self.news += other.news
        self.interrupts += other.interrupts
        self.bells += other.bells
        self.rings_effects |= other.rings_effects
        self.rings_deliveries |= other.rings_deliveries
        self.orders += other.orders
        self.cancels += other.cancels


class UnitOfWork:
    """A transaction, and what follows its commit. Use it as an async context manager, once.

    Attributes:
        connection: Of the transaction.
    """

    __slots__ = ("_after", "_follow", "_scope", "connection")

    def __init__(
        self,
        scope: AbstractAsyncContextManager[Connection],
        follow: Callable[[Consequences], Awaitable[None]],
    ) -> None:
        """Take the transaction, and what does the consequences once it is committed."""
        self._scope = scope
        self._follow = follow
        self._after = Consequences()

    @property
    def is_followed(self) -> bool:
        """Whether anything is to follow, so far."""
        return bool(self._after)

    def publish(self, publish: Callable[[], None]) -> None:
        """Publish something before all else that follows, so that followers of a run see it before its consequences."""
        self._after.published.append(publish)

    def ring(self, bells: Iterable[Doorbell]) -> None:
        """Ring for runs that were queued."""
        self._after.bells.extend(bells)

    def ring_effects(self) -> None:
        """Ring for effects that were added."""
        self._after.rings_effects = True

    def ring_deliveries(self) -> None:
        """Ring for deliveries that were added."""
        self._after.rings_deliveries = True

    def notify_order(self, order_id: str) -> None:
        """Notify the requests that wait for a work order, which has ended or needs a person."""
        self._after.orders.append(order_id)

    def cancel(self, requests: Iterable[CancelRequest]) -> None:
        """Apply cancel requests at once."""
        self._after.cancels.extend(requests)

    def interrupt(self, run_id: str) -> None:
        """Interrupt a run at once."""
        self._after.interrupts.append(run_id)

    def announce(self, news: TreeNews) -> None:
        """Publish what changed in an orchestration."""
        self._after.news.append(news)

    def take_over(self, doubted: UnitOfWork) -> None:
        """Do what was to follow another unit, whose commit was not confirmed and is found to have happened."""
        self._after.add(doubted._after)

    async def __aenter__(self) -> Self:
        self.connection = await self._scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._scope.__aexit__(kind, error, trace)
        if error is None:
            await self._follow(self._after)


class Silence:
    """Implements `Dispatcher` and `CancelNotifier`: what follows a commit is left to the reconciler."""

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Ring for no run."""

    def ring_effects(self) -> None:
        """Ring for no effect."""

    def ring_deliveries(self) -> None:
        """Ring for no delivery."""

    async def apply_requests(self, requests: Sequence[CancelRequest]) -> None:
        """Cancel nothing."""

    async def apply_interrupt(self, run_id: str) -> None:
        """Interrupt nothing."""

    def announce_tree(self, news: TreeNews) -> None:
        """Announce nothing."""

    async def notify_order(self, order_id: str) -> None:
        """Notify of no order."""


class Work:
    """Begins units of work. One object per process.

    Attributes:
        database: The database, for what is only read.
        dispatcher: Rings for runs, effects and deliveries.
        notifier: Applies cancel requests and interrupts, and publishes.
    """

    def __init__(
        self, database: Database, dispatcher: Dispatcher | None = None, notifier: CancelNotifier | None = None
    ) -> None:
        """Keep the ports. Without one, what it would do is left to the reconciler."""
        silence = Silence()
        self.database = database
        self.dispatcher: Dispatcher = dispatcher or silence
        self.notifier: CancelNotifier = notifier or silence
        self._open: set[asyncio.Task[None]] = set()

    def begin(self) -> UnitOfWork:
        """Begin a unit of work in a transaction.

        Raises:
            Unavailable: On entry or exit: the database fails, and nothing was written.
            OutcomeUnknown: On exit: the commit is not confirmed.
        """
        return UnitOfWork(self.database.transaction(), self.follow)

    def begin_statement(self) -> UnitOfWork:
        """Begin a unit of work whose one statement that writes commits by itself: a round trip instead of three."""
        return UnitOfWork(self.database.connection(), self.follow)

    def ring(self, bells: Sequence[Doorbell]) -> None:
        """Ring for runs that are queued already, such as those of doorbells that this process cannot answer."""
        if bells:
            self.dispatcher.ring_runs(bells)

    async def follow(self, after: Consequences) -> None:
        """Do what follows a commit. Never raises, and waits for a moment only for what takes long."""
        for publish in after.published:
            _attempt(publish)
        if after.published:
            # Lets the publisher write them, before this task goes on to compute: followers wait for them.
            await asyncio.sleep(0)
        # News come before doorbells: a worker that answers one announces what its agent does next.
        for news in after.news:
            self.notifier.announce_tree(news)
        if after.interrupts:
            await self._settle(_each(self.notifier.apply_interrupt, after.interrupts))
        self.ring(after.bells)
        if after.rings_effects:
            self.dispatcher.ring_effects()
        if after.rings_deliveries:
            self.dispatcher.ring_deliveries()
        if after.orders:
            await self._settle(_each(self.notifier.notify_order, after.orders))
        if after.cancels:
            await self._settle(self.notifier.apply_requests(after.cancels))

    async def close(self) -> None:
        """Stop what still follows."""
        await stop_tasks(list(self._open))

    async def _settle(self, following: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_done(following), name="after-commit")
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        done, _ = await asyncio.wait({task}, timeout=_PATIENCE_S)
        for ended in done:
            # What is no `Exception` ends the process, or its loop.
            ended.result()


def _attempt(publish: Callable[[], None]) -> None:
    try:
        publish()
    except Exception:
        # As below: followers find it in the ledger.
        _log.exception("work.not_published")


async def _each(do: Callable[[str], Awaitable[None]], ids: Sequence[str]) -> None:
    for each in ids:
        await do(each)


async def _done(following: Coroutine[Any, Any, None]) -> None:
    try:
        await following
    except Exception:
        # The head of what follows a commit: the reconciler does the rest.
        _log.exception("work.not_followed")
