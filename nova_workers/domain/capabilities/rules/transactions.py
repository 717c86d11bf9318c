"""The transaction of a tool call: what the tool writes to the ledger, and the result of the call, commit together.

Above: `serving`, which opens one for each call of a tool that is not read-only. Below: the process's units of work.
While a call is open, all that its tool writes joins one transaction, which begins with the first write. Each unit of
work of the tool is a part of it: one that fails is undone alone (by a savepoint, if the call has written before), and
the tool may go on. What follows its parts follows the commit of the whole. The last statement before the commit checks
the run's fence and records the result, so a worker that lost its run writes nothing, and a successor finds either
nothing of a call or all of it and its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from nova_workers.base.errors import Unavailable
from nova_workers.base.observability.redaction import hide
from nova_workers.contracts.content import storable, text_block, text_of
from nova_workers.contracts.user_tools import GivenAnswer
from nova_workers.domain.capabilities.rules.seam import CapabilityContext
from nova_workers.domain.runs.sql.journal import seal_call
from nova_workers.domain.runs.sql.resume import find_results
from nova_workers.domain.waits.sql.records import find_answers
from nova_workers.ledger.database import Connection, Database, Row, Snapshot
from nova_workers.ledger.failures import UNAVAILABLE, UNSTORABLE, unstorable, writes
from nova_workers.ledger.work import Consequences, UnitOfWork, Work


class CallTransaction:
    """The transaction of one call.

    Attributes:
        result: The result to record; None if it comes from outside.
        journalled: Whether the journal has the call, so that its result was recorded, or may have been.
        is_open: Whether its tool works. Tasks that the tool left behind do not belong to it.
        innermost: The part that is open now, the innermost one if it has parts itself.
    """

    def __init__(self, work: Work, context: CapabilityContext, tasks: set[asyncio.Task[None]]) -> None:
        """Take what the call is a unit of work of, its context, and where to keep a task that may outlive it."""
        self.result: str | None = None
        self.journalled = False
        self.is_open = True
        self.innermost: _Part | None = None
        self._work = work
        self._context = context
        self._tasks = tasks
        self._transaction = AsyncExitStack()
        self._connection: Connection | None = None
        self._savepoints = 0
        self._failure: BaseException | None = None
        self._after = Consequences()

    @property
    def has_begun(self) -> bool:
        """Whether the tool has written."""
        return self._connection is not None

    @property
    def database(self) -> Database:
        """Where statements go that read before the tool has written."""
        return self._work.database

    async def begin(self) -> Connection:
        """Return the connection of the transaction, which begins with the first call."""
        if self._connection is None:
            self._connection = await self._transaction.enter_async_context(self._work.database.transaction())
        return self._connection

    async def begin_part(self) -> str | None:
        """Begin a part, and return its savepoint; None if nothing was written before it."""
        if self._connection is None:
            await self.begin()
            return None
        self._savepoints += 1
        savepoint = f"part_{self._savepoints}"
        await self._execute(self._connection, f"SAVEPOINT {savepoint}")
        return savepoint

    async def undo(self, savepoint: str | None, error: BaseException) -> None:
        """Undo a part that raised: alone, or with the whole call if the error ended its transaction.

        Raises:
            Unavailable: `error` is the driver's for an unavailable database.
            Unstorable: `error` is the driver's for a value that the database refuses.
        """
        ends_all = isinstance(error, (Unavailable, *UNAVAILABLE)) or not isinstance(error, Exception)
        if savepoint is None or self._connection is None or ends_all:
            if savepoint is not None:
                # What earlier parts wrote is lost too, whatever the tool makes of this error.
                self._failure = error
            await self.roll_back(error)
            return
        await self._execute(self._connection, f"ROLLBACK TO SAVEPOINT {savepoint}")
        if isinstance(error, UNSTORABLE):
            raise unstorable(error) from error

    async def keep(self, savepoint: str | None) -> None:
        """Keep a part, as far as the call is committed."""
        if savepoint is not None:
            await self._execute(await self.begin(), f"RELEASE SAVEPOINT {savepoint}")

    async def _execute(self, connection: Connection, statement: str) -> None:
        try:
            await connection.execute(statement)
        except BaseException as error:
            # The transaction is lost, whatever the tool makes of this error.
            self._failure = error
            await self.roll_back(error)
            raise

    async def follow(self, after: Consequences) -> None:
        """Let what follows a part that has ended follow what it is a part of."""
        (self._after if self.innermost is None else self.innermost.after).add(after)

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
            try:
                self.journalled = await seal_call(self._connection, claim.run_id, claim.fence, claim.call_id, result)
            except BaseException as error:
                await self.roll_back(error)
                raise
        conclusion = asyncio.create_task(self._conclude(self._take()), name="conclude-call")
        self._tasks.add(conclusion)
        conclusion.add_done_callback(self._tasks.discard)
        await asyncio.shield(conclusion)

    async def _conclude(self, transaction: AsyncExitStack) -> None:
        await transaction.aclose()
        await self._work.follow(self._after)

    def _take(self) -> AsyncExitStack:
        """Return the transaction, of which this call then has none."""
        taken = self._transaction
        self._transaction, self._connection = AsyncExitStack(), None
        return taken

    async def roll_back(self, error: BaseException) -> None:
        """Roll back what was written, if the transaction has begun.

        Raises:
            Unavailable: `error` is the driver's for an unavailable database.
            Unstorable: `error` is the driver's for a value that the database refuses.
        """
        await self._take().__aexit__(type(error), error, error.__traceback__)


class _Part:
    """A unit of work of a tool, nested in that of its call. Use it as an async context manager, once.

    Attributes:
        after: What follows the parts within it.
    """

    __slots__ = ("_begins", "_call", "_has_begun", "_outer", "_savepoint", "after")

    def __init__(self, call: CallTransaction, *, begins: bool) -> None:
        """Take the call. `begins`: at once, or else with the first statement that writes."""
        self.after = Consequences()
        self._call = call
        self._begins = begins
        self._outer: _Part | None = None
        self._has_begun = False
        self._savepoint: str | None = None

    @property
    def reads_elsewhere(self) -> bool:
        """Whether nothing was written that a statement which only reads would have to see."""
        return not self._call.has_begun

    async def begin(self) -> Connection:
        """Return the connection of the call's transaction, in which it begins with the first call."""
        if not self._has_begun:
            self._savepoint = await self._call.begin_part()
            self._has_begun = True
        return await self._call.begin()

    async def __aenter__(self) -> Connection:
        connection = await self.begin() if self._begins else _PartConnection(self, self._call.database)
        self._outer, self._call.innermost = self._call.innermost, self
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.innermost = self._outer
        if error is None:
            await self._call.keep(self._savepoint)
            await self._call.follow(self.after)
        elif self._has_begun:
            await self._call.undo(self._savepoint, error)


class _PartConnection:
    """A connection in a call: statements commit by themselves until the first one that writes."""

    __slots__ = ("_database", "_part")

    def __init__(self, part: _Part, database: Database) -> None:
        self._part = part
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
        if self._part.reads_elsewhere and not writes(statement):
            async with self._database.connection() as connection:
                yield connection
        else:
            yield await self._part.begin()


_open_call: ContextVar[CallTransaction | None] = ContextVar("open_call", default=None)


@contextmanager
def committed_at_once() -> Generator[None]:
    """Let what is written in the block commit by itself, whatever becomes of the call.

    For what a call that has effects elsewhere leaves for its repetition, and for a call that waits after it has
    written: its transaction would be open meanwhile. It is not under the fence, so it must not matter who wrote it.
    """
    token = _open_call.set(None)
    try:
        yield
    finally:
        _open_call.reset(token)


def _current() -> CallTransaction | None:
    call = _open_call.get()
    return call if call is not None and call.is_open else None


class CallTransactions:
    """Opens the transactions of tool calls. One object serves all worker slots of a process.

    Attributes:
        work: Begins the units of work of tools, which are parts of the call's.
    """

    def __init__(self, work: Work) -> None:
        """Take what begins the units of work of the process."""
        self._work = work
        self._tasks: set[asyncio.Task[None]] = set()
        self.work: Work = _CallWork(_CallDatabase(work.database), work.dispatcher, work.notifier)

    @asynccontextmanager
    async def open(self, context: CapabilityContext) -> AsyncGenerator[CallTransaction]:
        """Surround the work of a call. It is committed at the end of the block, or rolled back if that raises.

        Raises:
            RunLost, Conflict, Unavailable: See `CallTransaction.commit`.
        """
        call = CallTransaction(self._work, context, self._tasks)
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
        async with self._work.database.connection() as connection:
            found = await find_results(connection, context.run_id, context.fence, [context.call_id])
        call = found.get(context.call_id)
        return None if call is None or call.result is None else text_of(call.result)

    async def find_answers(self, context: CapabilityContext, call_id: str) -> tuple[GivenAnswer, ...]:
        """Return the answers to the questions that a call of a tool of users has asked, in their order."""
        if context.attempt == 1:
            # A run that has waited is in a later attempt.
            return ()
        async with self._work.database.connection() as connection:
            return await find_answers(connection, context.run_id, call_id)


class _CallWork(Work):
    """Begins the units of work of tools. Outside of a call it is as any other."""

    def begin(self) -> UnitOfWork:
        """Begin a unit of work; in a call, a part of it."""
        call = _current()
        return super().begin() if call is None else UnitOfWork(_Part(call, begins=True), call.follow)

    def begin_statement(self) -> UnitOfWork:
        """Begin a unit of work of one statement that writes; in a call, a part of it."""
        call = _current()
        return super().begin_statement() if call is None else UnitOfWork(_Part(call, begins=False), call.follow)


class _CallDatabase(Database):
    """The database of tools. Outside of a call it is the one behind it."""

    def __init__(self, database: Database) -> None:
        self._inner = database

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Lend a connection. In a call, its writes belong to the call's transaction."""
        call = _current()
        return self._inner.connection() if call is None else _Part(call, begins=False)

    def transaction(self) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction. In a call, it is a part of the call's."""
        call = _current()
        return self._inner.transaction() if call is None else _Part(call, begins=True)

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Open a snapshot, which reads only."""
        return self._inner.snapshot()
