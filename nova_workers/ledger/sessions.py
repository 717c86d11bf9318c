"""Sessions with Postgres: their role, the tenant that they see, the actor of changes, and their type codecs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any

import asyncpg
import orjson
from asyncpg.transaction import Transaction

from nova_workers.base.sockets import TCP_OPTIONS
from nova_workers.contracts.content import storable_json
from nova_workers.ledger.failures import UNAVAILABLE
from nova_workers.ledger.named_sql import bind

FLEET_ROLE = "nova_fleet"
"""Sees and changes the rows of all tenants (`models/rights/row_security.py`)."""
TENANT_ROLE = "nova_tenant"
"""Sees and changes the rows of the tenant that the setting `nova.tenant` names."""

CANCELLATION_S = 1.0
"""For the cancellation of a statement that was interrupted, by its timeout or with its task; then its connection is
closed."""
_IDLE_S = 5.0
_PROBE_S = 2.0
_IDLE_TRANSACTION = "20s"
"""Postgres ends a session whose transaction waits this long for its client: a process that was stopped in a transaction
would hold its locks, and recovery would skip the runs and threads that it locked. Shorter than a lease."""

_ARRAYS = (
    *(("bool", 16, 1000), ("bytea", 17, 1001), ("int8", 20, 1016), ("int2", 21, 1005), ("int4", 23, 1007)),
    *(("float4", 700, 1021), ("float8", 701, 1022), ("numeric", 1700, 1231), ("date", 1082, 1182)),
    *(("timestamptz", 1184, 1185), ("interval", 1186, 1187), ("jsonb", 3802, 3807)),
)
"""The arrays of values and results, each with the ids of its elements' type and its own, which no release of Postgres
changes. asyncpg knows those of text alone, and reads the catalogue for any other: 5 ms of the server's CPU in each
session, for each statement that meets a new one."""

_SETTLE = f"""
SET idle_in_transaction_session_timeout = '{_IDLE_TRANSACTION}';
SET tcp_keepalives_idle = 30;
SET tcp_keepalives_interval = 10;
SET tcp_keepalives_count = 3
"""
"""Postgres ends a session whose machine is gone within a minute, also in the middle of a statement, where it waits for
the statement's next message and the timeout above does not count. Its locks would hold up recovery, or a migration and
all that waits behind it, for the two hours that systems usually take to ask."""

_BIND = "SELECT set_config('nova.tenant', :tenant_id, false), set_config('nova.actor', :actor, false)"

_BIND_TRANSACTION = f"""
SELECT set_config('role', :role, true), set_config('nova.tenant', :tenant_id, true),
       set_config('nova.actor', :actor, true),
       set_config('idle_in_transaction_session_timeout', '{_IDLE_TRANSACTION}', true)
"""
"""Through a pooler nothing may stay in the session: its next transaction is of another process, for another tenant."""
_URL_USER = "none"
"""The value of `role` for the user of the URL."""


class RoleRefused(Exception):
    """The user of the URL cannot take on a role; says what to do."""


class _Transaction(Transaction):
    """A transaction whose rollback is bounded, and does not replace the error or the cancellation that caused it.

    Before the rollback asyncpg waits for the cancellation of an interrupted statement, for as long as a statement may
    take. The server rolls back by itself once the connection is closed.
    """

    async def start(self) -> None:
        """Begin, and bind the transaction where the session is not this connection's own."""
        await super().start()
        session = self._connection
        if isinstance(session, Session) and session.is_shared:
            await session.bind_transaction()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await super().__aexit__(kind, error, trace)
            return
        with suppress(*UNAVAILABLE):
            try:
                async with asyncio.timeout(CANCELLATION_S):
                    await super().__aexit__(kind, error, trace)
            except TimeoutError:
                self._connection.terminate()


class Session(asyncpg.Connection):  # type: ignore[type-arg]
    """A connection that is not reset when it returns to the pool: its only session state is set at each checkout.

    Behind a pooler it sets none: each transaction is bound by itself.

    The reset costs a round trip per checkout (measured: 277 µs with it, 152 µs without).
    """

    generation = 0
    """Of its pool, when it was opened."""
    number = 0
    """The number in the order in which its pool opened them."""

    used_s = 0.0
    """When it was last taken from the pool, on the loop's clock; 0 before the first time."""
    bound_to: tuple[str, str] | None = ("", "")
    """The tenant whose rows it sees, and the actor of its changes; empty for none. None if that is unknown."""
    is_shared = False
    """Whether a pooler stands between, which lends a session of the server for each transaction."""
    role: str | None = None
    """The role of its statements; None for that of the URL's user."""

    @property
    def statements(self) -> int:
        """How many statements it has executed."""
        return self._driver.queries_count

    @property
    def is_clean(self) -> bool:
        """Whether it is open, and in no transaction."""
        return not (self.is_closed() or self.is_in_transaction())

    async def settle(self) -> None:
        """Wait for the end of an interrupted statement's cancellation, and end what it left."""
        await self._driver._wait_for_cancellation(None)
        await self.reset()

    def get_reset_query(self) -> str:
        """Return nothing: what a borrower changed is undone by the transaction, or stays for the next `bind`."""
        return ""

    @property
    def _driver(self) -> Any:
        return self._protocol

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False, deferrable: bool = False
    ) -> Transaction:
        """Return a transaction whose rollback is bounded."""
        return _Transaction(self, isolation, readonly, deferrable)

    def watch_peer(self) -> None:
        """Let the kernel close a TCP connection whose other end is silent.

        A statement on a connection that the network lost would wait for the longest time that a statement may take.
        """
        end: socket.socket | None = self._transport.get_extra_info("socket")
        if end is None or end.family == socket.AF_UNIX:
            return
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in TCP_OPTIONS.items():
            end.setsockopt(socket.IPPROTO_TCP, option, value)

    async def answers(self) -> bool:
        """Return whether the server is at the other end. Costs a round trip if the connection was idle for long.

        A firewall that forgot the connection drops what it sends: its first statement would wait for the longest time
        that a statement may take.
        """
        now_s = asyncio.get_running_loop().time()
        was_idle, self.used_s = bool(self.used_s) and now_s - self.used_s > _IDLE_S, now_s
        if was_idle:
            try:
                await self.execute("SELECT 1", timeout=_PROBE_S)
            except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.PostgresError):
                return False
        return True

    async def bind(self, tenant_id: str, actor: str) -> None:
        """See the rows of one tenant, and record changes as an actor's; empty for none.

        Costs a round trip only if either differs from what it was before. On a shared session it counts from the next
        transaction on.
        """
        if self.is_shared:
            self.bound_to = (tenant_id, actor)
        elif self.bound_to != (tenant_id, actor):
            # Unknown, should the statement be interrupted.
            self.bound_to = None
            text, arguments = bind(_BIND, {"tenant_id": tenant_id, "actor": actor})
            await self.execute(text, *arguments)
            self.bound_to = (tenant_id, actor)

    async def bind_transaction(self) -> None:
        """Bind the transaction that has begun to the role, the tenant and the actor of this connection."""
        tenant_id, actor = self.bound_to or ("", "")
        values = {"role": self.role or _URL_USER, "tenant_id": tenant_id, "actor": actor}
        text, arguments = bind(_BIND_TRANSACTION, values)
        await self.execute(text, *arguments)

    def learn_arrays(self, arrays: Iterable[tuple[str, int, int]]) -> None:
        """Know array types of Postgres itself without reading them from its catalogue.

        Args:
            arrays: The name and the id of each elements' type, and the array's id.
        """
        unset = dict.fromkeys(("kind", "basetype", "range_subtype", "attrtypoids", "attrnames"))
        self._driver.get_settings().register_data_types(
            {**unset, "oid": own, "ns": "pg_catalog", "name": f"_{name}", "elemtype": element, "elemdelim": ","}
            for name, element, own in arrays
        )

    async def has_pooler(self) -> bool:
        """Return whether a pooler stands between: it gives its clients a process id that is not the server's."""
        # Text only: a statement with values is prepared, which a pooler may not survive.
        own = await self.execute(f"SELECT WHERE pg_backend_pid() = {self.get_server_pid()}")
        return own == "SELECT 0"


def session_opener(
    url: str, *, name: str, role: str | None, command_timeout_s: float
) -> Callable[[], Awaitable[Session]]:
    """Return a function that opens a session in a role; None keeps that of the URL's user.

    It raises `RoleRefused` if the role does not exist yet, or the user may not take it on.

    Args:
        url: Of the database.
        name: Of the sessions, in `pg_stat_activity`.
        role: Of the sessions.
        command_timeout_s: For a statement.
    """

    async def open_session() -> Session:
        session = await _connect(
            url,
            connection_class=Session,
            command_timeout=command_timeout_s,
            # Without a limit: asyncpg drops statements after 5 minutes, used or not, and each would be planned five
            # times again. Postgres plans again what a change of a table's definition or statistics concerns.
            max_cached_statement_lifetime=0,
            server_settings={"application_name": name},
        )
        try:
            await _prepare(session, role)
        except BaseException:
            session.terminate()
            raise
        return session

    return open_session


async def _prepare(session: Session, role: str | None) -> None:
    session.watch_peer()
    session.role = role
    if session.is_shared:
        async with _saying_what_to_grant(role), session.transaction():
            await _add_codecs(session)
        return
    await _add_codecs(session)
    await session.execute(_SETTLE)
    if role is not None:
        async with _saying_what_to_grant(role):
            await session.execute(f"SET ROLE {role}")


async def _connect(*arguments: Any, **options: Any) -> Session:
    """Connect, and again without prepared statements where a pooler stands between.

    A prepared statement belongs to a session of the server, and the next transaction may get another.
    """
    session: Session = await asyncpg.connect(*arguments, **options)
    try:
        if not await session.has_pooler():
            return session
    except BaseException:
        session.terminate()
        raise
    await session.close()
    session = await asyncpg.connect(*arguments, **{**options, "statement_cache_size": 0})
    session.is_shared = True
    return session


async def _add_codecs(session: Session) -> None:
    await session.set_type_codec("jsonb", schema="pg_catalog", encoder=_to_json, decoder=orjson.loads)
    # After the codec of their elements, which they take over.
    session.learn_arrays(_ARRAYS)


@asynccontextmanager
async def _saying_what_to_grant(role: str | None) -> AsyncGenerator[None]:
    try:
        yield
    except (asyncpg.InvalidParameterValueError, asyncpg.InsufficientPrivilegeError) as error:
        raise RoleRefused(
            f"The database user of NOVA_DATABASE_URL cannot take on the role {role!r} ({error}). Run `nova migrate`, "
            f"which makes the roles; then, as their owner: GRANT {FLEET_ROLE}, {TENANT_ROLE} TO that user."
        ) from error


def _to_json(value: object) -> str:
    try:
        document = orjson.dumps(value)
    except TypeError:
        # Lone surrogates, which `storable_json` replaces; a value that is not JSON raises again here.
        return orjson.dumps(storable_json(value)).decode()
    if b"\\u0000" in document:
        document = orjson.dumps(storable_json(value))
    return document.decode()
