"""The pool of Postgres connections and its type codecs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Protocol

import asyncpg

from nova_workers.base.errors import Unavailable
from nova_workers.ledger.auditing import current_actor
from nova_workers.ledger.connections import BoundConnection, Row, SharedConnection, SharedSnapshot
from nova_workers.ledger.failures import (
    UNAVAILABLE,
    UNSTORABLE,
    is_refusal,
    unavailable,
    unstorable,
)
from nova_workers.ledger.session_pool import SessionPool
from nova_workers.ledger.sessions import FLEET_ROLE, TENANT_ROLE, RoleRefused, Session, session_opener
from nova_workers.ledger.shares import Shares
from nova_workers.ledger.visibility import bound_tenant, visible_tenant
from nova_workers.ledger.write_record import note_sent

__all__ = ["Access", "Connection", "Database", "PostgresDatabase", "Row", "Snapshot"]

_MOST_STATEMENTS: Final = 50_000
"""Of a session, which bounds what its server process caches."""

Access = Literal["user", "fleet", "tenants"]
"""What the statements of a pool see: all that the user of the URL may (commands); the rows of all tenants, and in a
context that is bound to a tenant those of that one (workers); only those of the tenant to which the context is bound
(the API, see `visibility`)."""


class Connection(Protocol):
    """The connection interface of ledger functions. Each call is one round trip.

    Values are bound by name: ``fetch("SELECT … WHERE id = :run_id", run_id=run_id)``.
    """

    async def fetch(self, statement: str, /, **values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        ...

    async def fetchrow(self, statement: str, /, **values: Any) -> Row | None:
        """Run a statement and return its first row."""
        ...

    async def fetchval(self, statement: str, /, **values: Any) -> Any:
        """Run a statement and return the first column of its first row."""
        ...

    async def execute(self, statement: str, /, **values: Any) -> str:
        """Run a statement and return its command tag, such as ``UPDATE 1``."""
        ...


class Snapshot(Connection, Protocol):
    """A connection with a repeatable-read view of the database, in UTC, that also reads row by row."""

    def rows(self, statement: str, /, *, at_once: int, **values: Any) -> AsyncGenerator[Row]:
        """Yield the rows of a statement, with at most `at_once` of them in memory."""
        ...


class Database(Protocol):
    """Where ledger functions get connections. Implemented by `PostgresDatabase`, and by what stands in front of one.

    Every failure to reach the database raises `Unavailable`, which says whether a write may have been committed.
    """

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Check out a connection on which each statement commits by itself.

        Raises:
            Unavailable: The database cannot be reached, or the connection was lost. A statement that was sent may have
                been committed.
            Unstorable: It refuses a value; nothing was written.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[Connection]:
        """Check out a connection inside a transaction, committed if the block does not raise.

        Raises:
            Unavailable: The database cannot be reached, or the connection was lost; the transaction did not happen,
                unless the connection broke during the commit itself.
            Unstorable: The database refuses a value; nothing was written.
        """
        ...

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Check out a connection with a read-only snapshot of the database.

        Raises:
            Unavailable: The database cannot be reached, or the connection was lost.
        """
        ...

    async def fetch(self, statement: str, /, **values: Any) -> list[Row]:
        """Run one statement in its own transaction and return its rows."""
        async with self.connection() as connection:
            return await connection.fetch(statement, **values)

    async def fetchrow(self, statement: str, /, **values: Any) -> Row | None:
        """Run one statement in its own transaction and return its first row."""
        async with self.connection() as connection:
            return await connection.fetchrow(statement, **values)

    async def fetchval(self, statement: str, /, **values: Any) -> Any:
        """Run one statement in its own transaction and return one value."""
        async with self.connection() as connection:
            return await connection.fetchval(statement, **values)

    async def execute(self, statement: str, /, **values: Any) -> str:
        """Run one statement in its own transaction and return its command tag."""
        async with self.connection() as connection:
            return await connection.execute(statement, **values)


class PostgresDatabase(Database):
    """A pool of connections to one Postgres. Connects at first use, so a process can start while it is down."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int,
        access: Access = "user",
        name: str = "nova",
        reserved: int = 0,
        per_tenant: int | None = None,
        command_timeout_s: float = 30.0,
        keeps_sessions: bool = False,
    ) -> None:
        """Take where it is, and its bounds.

        Args:
            url: Of the database.
            pool_size: Most connections.
            access: What its statements see.
            name: Of its sessions, in `pg_stat_activity`.
            reserved: With the access ``tenants``, those of them for contexts that see all tenants; with ``fleet``,
                further ones for contexts that are bound to a tenant.
            per_tenant: Most of each pool that the tasks of one tenant hold at once (see `shares`).
            command_timeout_s: For a statement, and for a connection.
            keeps_sessions: Never end a session that works, since it holds locks.
        """
        self._url = url
        self._access: Access = access
        self._name = name
        if access == "tenants":
            reserved = max(1, reserved)
            self._sizes: dict[str | None, int] = {FLEET_ROLE: reserved, TENANT_ROLE: max(1, pool_size - reserved)}
        else:
            self._sizes = {None: pool_size, FLEET_ROLE: pool_size, TENANT_ROLE: max(1, reserved)}
        # In each pool one is left to others, such as the check of their keys.
        self._shares = {
            role: Shares(max(1, min(per_tenant, size - 1)), patience_s=command_timeout_s)
            for role, size in self._sizes.items()
            if per_tenant is not None
        }
        self._command_timeout_s = command_timeout_s
        self._keeps_sessions = keeps_sessions
        self._pools: dict[str | None, SessionPool] = {}

    async def open(self) -> None:
        """Connect now, to fail early.

        Raises:
            Unavailable: The database cannot be reached.
        """
        async with self.connection():
            pass

    async def close(self) -> None:
        """Close every connection."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    async def is_shared(self) -> bool:
        """Return whether a pooler stands between: its clients share sessions, so a session's locks are of no client.

        Raises:
            Unavailable: The database cannot be reached.
        """
        try:
            async with self._lend() as connection:
                return connection.is_shared
        except UNAVAILABLE as error:
            raise unavailable(error, may_be_written=False) from error

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Check out a connection on which each statement commits by itself. See `Database.connection`."""
        return _Checkout(self._lend())

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """Check out a connection inside a transaction. See `Database.transaction`."""
        committing: list[str] = []
        try:
            async with self._lend() as connection, connection.transaction():
                bound = BoundConnection(connection)
                yield bound
                committing = bound.sent
        except BaseException as error:
            # Noted also for a commit that a cancellation interrupted.
            may_be_written = not is_refusal(error) and note_sent(committing)
            if isinstance(error, UNAVAILABLE):
                raise unavailable(error, may_be_written=may_be_written) from error
            if isinstance(error, UNSTORABLE):
                raise unstorable(error) from error
            raise
        note_sent(committing)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot]:
        """Check out a connection with a read-only snapshot of the database. See `Database.snapshot`."""
        try:
            async with (
                self._lend() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                # For this transaction only, which holds no locks: its reader may be slow.
                await connection.execute(
                    "SET LOCAL TimeZone = 'UTC'; SET LOCAL idle_in_transaction_session_timeout = 0"
                )
                yield SharedSnapshot(connection) if connection.is_shared else BoundConnection(connection)
        except UNAVAILABLE as error:
            raise unavailable(error, may_be_written=False) from error
        except UNSTORABLE as error:
            raise unstorable(error) from error

    def _lend(self) -> _Loan:
        role, tenant_id = self._session()
        return _Loan(self._pool(role), self._shares.get(role), tenant_id or "", self._command_timeout_s)

    def _session(self) -> tuple[str | None, str | None]:
        """Return the role that the statements of this context need, and the tenant."""
        if self._access == "user":
            return None, None
        tenant_id = visible_tenant() if self._access == "tenants" else bound_tenant()
        return (FLEET_ROLE if tenant_id is None else TENANT_ROLE), tenant_id

    def _pool(self, role: str | None) -> SessionPool:
        pool = self._pools.get(role)
        if pool is None:
            pool = self._pools[role] = SessionPool(
                session_opener(self._url, name=self._name, role=role, command_timeout_s=self._command_timeout_s),
                size=self._sizes[role],
                most_statements=sys.maxsize if self._keeps_sessions else _MOST_STATEMENTS,
            )
        return pool


class _Loan:
    """A session for a block: of the tenant's share, alive, and bound to the tenant and the actor of the context.

    A class, like `_Checkout`: each statement of a turn enters both, and a generator costs three times as much.
    """

    __slots__ = ("_pool", "_session", "_share", "_shares", "_tenant_id", "_timeout_s")

    def __init__(self, pool: SessionPool, shares: Shares | None, tenant_id: str, timeout_s: float) -> None:
        self._pool = pool
        self._shares = shares
        self._tenant_id = tenant_id
        self._timeout_s = timeout_s
        self._share: asyncio.Semaphore | None = None

    async def __aenter__(self) -> Session:
        if self._shares is not None:
            self._share = await self._shares.take()
        try:
            self._session = await self._borrow_alive()
        except RoleRefused as error:
            self._release_share()
            reason = "The database refuses the fleet a right that it needs."
            raise Unavailable(
                f"{reason} Nothing was written; try again.",
                reason=reason,
                cause=str(error),
                server="postgres",
                may_be_written=False,
            ) from error
        except BaseException:
            self._release_share()
            raise
        try:
            await self._session.bind(self._tenant_id, current_actor())
        except BaseException as error:
            await self._release(error)
            raise
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._release(error)

    async def _borrow_alive(self) -> Session:
        while True:
            session = await self._pool.borrow(self._timeout_s)
            try:
                if await session.answers():
                    return session
            except BaseException:
                await self._pool.release(session, is_interrupted=True)
                raise
            # The network lost it while it was idle, and so probably all others.
            session.terminate()
            await self._pool.release(session)
            self._pool.expire()

    async def _release(self, error: BaseException | None) -> None:
        if isinstance(error, asyncpg.InternalClientError):
            # The connection is out of sync with its server, so the next user would fail too.
            self._session.terminate()
        elif isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            # After a failover a new connection to the same address may reach a server that takes writes.
            self._pool.expire()
        try:
            await self._pool.release(self._session, is_interrupted=error is not None)
        finally:
            self._release_share()

    def _release_share(self) -> None:
        if self._share is not None:
            self._share.release()
            self._share = None


class _Checkout:
    """A connection for a block, whose failures are errors of ours."""

    __slots__ = ("_bound", "_loan")

    def __init__(self, loan: _Loan) -> None:
        self._loan = loan
        self._bound: BoundConnection | None = None

    async def __aenter__(self) -> Connection:
        try:
            session = await self._loan.__aenter__()
        except (*UNAVAILABLE, *UNSTORABLE) as error:
            _raise(error, may_be_written=False)
        self._bound = SharedConnection(session) if session.is_shared else BoundConnection(session)
        return self._bound

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._bound is not None  # noqa: S101 - it was entered
        sent = self._bound.sent
        # The server rolled back the statement it refused and had committed the ones before.
        may_be_written = note_sent(sent[:-1] if error is not None and is_refusal(error) else sent)
        await self._loan.__aexit__(kind, error, trace)
        if isinstance(error, (*UNAVAILABLE, *UNSTORABLE)):
            _raise(error, may_be_written=may_be_written)


def _raise(error: BaseException, *, may_be_written: bool) -> NoReturn:
    if isinstance(error, UNSTORABLE):
        raise unstorable(error) from error
    raise unavailable(error, may_be_written=may_be_written) from error
