"""The transaction of a tool call: what the tool writes to the ledger, and the result of the call, commit together.

Above: `serving`, which opens one for each call of a tool that is not read-only. Below: the database, the dispatcher and
the notifier that tools get. While a call is open, all that its tool writes through them joins one transaction, which
begins with the first write, and doorbells and notifications follow its commit. The last statement before the commit
checks the run's fence and records the result, so a worker that lost its run writes nothing, and a successor finds
either nothing of a call or all of it and its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any

import structlog

from nova_workers.base.observability.redaction import hide
from nova_workers.contracts.content import storable, text_block, text_of
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.ports import CancelNotifier, Dispatcher
from nova_workers.contracts.runs import CancelRequest, Doorbell
from nova_workers.domain.capabilities.rules.seam import CapabilityContext
from nova_workers.domain.runs.sql.journal import seal_call
from nova_workers.domain.runs.sql.resume import find_results
from nova_workers.ledger.database import Connection, Database, Row, Snapshot
from nova_workers.ledger.failures import writes
from nova_workers.ledger.work import Work

__all__ = ["CallTransaction", "CallTransactions"]

_log = structlog.get_logger(__name__)

_Action = Callable[[], Awaitable[None]]
"""What follows a commit."""


class CallTransaction:
    """The transaction of one call.

    Attributes:
        result: The result to record; None if it comes from outside.
        journalled: Whether the journal has the call, so that its result was recorded, or may have been.
        is_open: Whether its tool works. Tasks that the tool left behind do not belong to it.
    """

    def __init__(self, database: Database, context: CapabilityContext, tasks: set[asyncio.Task[None]]) -> None:
        """Take the database, the call's context, and where to keep a task that may outlive the call."""
        self.result: str | None = None
        self.journalled = False
        self.is_open = True
        self._database = database
        self._context = context
        self._tasks = tasks
        self._transaction = AsyncExitStack()
        self._connection: Connection | None = None
        self._blocks = 0
        self._failure: BaseException | None = None
        self._following: list[_Action] = []

    @property
    def has_begun(self) -> bool:
        """Whether the tool has written."""
        return self._connection is not None

    async def begin(self) -> Connection:
        """Return the connection of the transaction, which begins with the first call."""
        if self._connection is None:
            self._connection = await self._transaction.enter_async_context(self._database.transaction())
        return self._connection

    @asynccontextmanager
    async def block(self) -> AsyncGenerator[None]:
        """Surround a block that may write. If it raises, the whole transaction is rolled back."""
        try:
            yield
        except BaseException as error:
            if self._blocks:
                # What an earlier block wrote is lost too, whatever the tool makes of this error.
                self._failure = error
            await self.roll_back(error)
            raise
        self._blocks += self.has_begun

    def follow(self, action: _Action) -> None:
        """Do something after the commit. It must not raise."""
        self._following.append(action)

    async def commit(self) -> None:
        """Check the fence, record the result, and commit; then do what follows. Nothing to do if nothing was written.

        A cancellation from the commit on returns at once, and leaves the commit and what follows to a task: otherwise
        doorbells of what was written would wait for the reconciler.

        Raises:
            RunLost: The run is not this claim's any more.
            Conflict: An earlier try of this call was committed.
            Unavailable: The database does not answer.
        """
        if self._failure is not None:
            raise self._failure
        if self._connection is not None:
            claim = self._context
            result = None if self.result is None else (text_block(hide(storable(self.result))),)
            async with self.block():
                self.journalled = await seal_call(self._connection, claim.run_id, claim.fence, claim.call_id, result)
        conclusion = asyncio.create_task(self._conclude(*self._take()), name="conclude-call")
        self._tasks.add(conclusion)
        conclusion.add_done_callback(self._tasks.discard)
        await asyncio.shield(conclusion)

    async def _conclude(self, transaction: AsyncExitStack, following: Sequence[_Action]) -> None:
        await transaction.aclose()
        for action in following:
            await action()

    def _take(self) -> tuple[AsyncExitStack, list[_Action]]:
        """Return the transaction and what follows it, of which this call then has none."""
        taken = self._transaction, self._following
        self._transaction, self._following, self._connection = AsyncExitStack(), [], None
        return taken

    async def roll_back(self, error: BaseException) -> None:
        """Roll back what was written, if the transaction has begun.

        Raises:
            Unavailable: `error` is the driver's for an unavailable database.
            Unstorable: `error` is the driver's for a value that the database refuses.
        """
        transaction, _ = self._take()
        await transaction.__aexit__(type(error), error, error.__traceback__)


_open_call: ContextVar[CallTransaction | None] = ContextVar("open_call", default=None)


def _current() -> CallTransaction | None:
    call = _open_call.get()
    return call if call is not None and call.is_open else None


class CallTransactions:
    """Opens the transactions of tool calls. One object serves all worker slots of a process.

    Attributes:
        database: The database for tools.
        dispatcher: The dispatcher for tools.
        notifier: The notifier for tools.
        work: Begins their units of work, which are parts of the call's.
    """

    def __init__(self, database: Database, dispatcher: Dispatcher, notifier: CancelNotifier) -> None:
        self._database = database
        self._tasks: set[asyncio.Task[None]] = set()
        self.database: Database = _CallDatabase(database)
        self.dispatcher: Dispatcher = _CallDispatcher(dispatcher)
        self.notifier: CancelNotifier = _CallNotifier(notifier)
        self.work = Work(self.database, self.dispatcher, self.notifier)

    @asynccontextmanager
    async def open(self, context: CapabilityContext) -> AsyncGenerator[CallTransaction]:
        """Surround the work of a call. It is committed at the end of the block, or rolled back if that raises.

        Raises:
            RunLost, Conflict, Unavailable: See `CallTransaction.commit`.
        """
        call = CallTransaction(self._database, context, self._tasks)
        token = _open_call.set(call)
        try:
            yield call
            call.is_open = False
            await call.commit()
        except BaseException as error:
            call.is_open = False
            await call.roll_back(error)
            raise
        finally:
            _open_call.reset(token)

    async def find_result(self, context: CapabilityContext) -> str | None:
        """Return the result that an earlier try of a call has committed, if it has."""
        if context.call_id is None:
            return None
        async with self._database.connection() as connection:
            found = await find_results(connection, context.run_id, context.fence, [context.call_id])
        call = found.get(context.call_id)
        return None if call is None or call.result is None else text_of(call.result)


class _CallDatabase(Database):
    """The database of tools. Outside of a call it is the one behind it."""

    def __init__(self, database: Database) -> None:
        self._inner = database

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """Lend a connection. In a call, its writes belong to the call's transaction."""
        call = _current()
        if call is None:
            async with self._inner.connection() as connection:
                yield connection
        else:
            async with call.block():
                yield _CallConnection(call, self._inner)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """Open a transaction. In a call, it is the call's."""
        call = _current()
        if call is None:
            async with self._inner.transaction() as connection:
                yield connection
        else:
            async with call.block():
                yield await call.begin()

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot]:
        """Open a snapshot, which reads only."""
        async with self._inner.snapshot() as snapshot:
            yield snapshot


class _CallConnection:
    """A connection in a call: statements commit by themselves until the first one that writes."""

    __slots__ = ("_call", "_database")

    def __init__(self, call: CallTransaction, database: Database) -> None:
        self._call = call
        self._database = database

    async def fetch(self, statement: str, /, **values: Any) -> list[Row]:
        async with self._lend(statement) as connection:
            return await connection.fetch(statement, **values)

    async def fetchrow(self, statement: str, /, **values: Any) -> Row | None:
        async with self._lend(statement) as connection:
            return await connection.fetchrow(statement, **values)

    async def fetchval(self, statement: str, /, **values: Any) -> Any:
        async with self._lend(statement) as connection:
            return await connection.fetchval(statement, **values)

    async def execute(self, statement: str, /, **values: Any) -> str:
        async with self._lend(statement) as connection:
            return await connection.execute(statement, **values)

    @asynccontextmanager
    async def _lend(self, statement: str) -> AsyncGenerator[Connection]:
        if self._call.has_begun or writes(statement):
            yield await self._call.begin()
        else:
            async with self._database.connection() as connection:
                yield connection


class _CallDispatcher:
    """The dispatcher of tools: rings after the commit of the call."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._inner = dispatcher

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Ring for queued runs."""
        _follow(lambda: self._inner.ring_runs(bells))

    def ring_effects(self) -> None:
        """Ring for due effects."""
        _follow(self._inner.ring_effects)

    def ring_deliveries(self) -> None:
        """Ring for pending deliveries."""
        _follow(self._inner.ring_deliveries)


class _CallNotifier:
    """The notifier of tools: notifies after the commit of the call."""

    def __init__(self, notifier: CancelNotifier) -> None:
        self._inner = notifier

    async def apply_requests(self, requests: Sequence[CancelRequest]) -> None:
        """Notify the workers that hold the runs."""
        call = _current()
        if call is None:
            await self._inner.apply_requests(requests)
            return

        async def apply() -> None:
            try:
                await self._inner.apply_requests(requests)
            except Exception:
                # The reconciler does it later.
                _log.exception("call.cancels_not_applied")

        call.follow(apply)

    async def apply_interrupt(self, run_id: str) -> None:
        """Interrupt a run. No tool does."""
        await self._inner.apply_interrupt(run_id)

    async def notify_order(self, order_id: str) -> None:
        """Notify the requests that wait for a work order. No tool changes one."""
        await self._inner.notify_order(order_id)

    def announce_tree(self, news: TreeNews) -> None:
        """Publish what changed in an orchestration."""
        _follow(lambda: self._inner.announce_tree(news))


def _follow(action: Callable[[], None]) -> None:
    call = _current()
    if call is None:
        action()
        return

    async def act() -> None:
        action()

    call.follow(act)
