"""Faults between one worker and its servers: it crashes, loses replies or blocks at a named statement.

The seam is the `Database` and the `Redis` that a worker gets, so production code has no hooks. Statements have the
names of their constants in the ledger: ``claim``, ``commit_step``, ``finish`` and so on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Literal, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from nova_workers.base.errors import OutcomeUnknown, Unavailable
from nova_workers.domain.delivery.sql import outbox
from nova_workers.domain.effects import sql as effects
from nova_workers.domain.orchestrations.sql import activations, open_trees, spawning
from nova_workers.domain.orchestrations.sql import agents as tree_agents
from nova_workers.domain.orchestrations.sql import locking as tree_locking
from nova_workers.domain.orchestrations.sql import messages as tree_messages
from nova_workers.domain.orders.sql import acceptance as order_acceptance
from nova_workers.domain.orders.sql import ends as order_ends
from nova_workers.domain.orders.sql import parts as order_parts
from nova_workers.domain.orders.sql import records as order_records
from nova_workers.domain.runs.sql import (
    cancel,
    claim,
    fairness,
    finish,
    holds,
    journal,
    leases,
    resume,
    scheduled,
    submit,
)
from nova_workers.domain.threads.sql import compaction
from nova_workers.domain.triggers.sql import due as trigger_due
from nova_workers.domain.triggers.sql import firing as trigger_firing
from nova_workers.domain.triggers.sql import gates as trigger_gates
from nova_workers.domain.triggers.sql import outcomes as trigger_outcomes
from nova_workers.domain.usage.sql import budgets
from nova_workers.domain.waits.sql import records as waits
from nova_workers.domain.waits.sql import release, suspend
from nova_workers.ledger.database import Connection, Database, Row, Snapshot
from tests.support.servers.databases import client_of

Fault = Literal["crash_before", "crash_after", "lose_reply", "refuse"]
"""The worker dies before the statement, or after the commit but before the reply; or it survives and gets an error of
an unavailable database, after the commit (``lose_reply``) or instead of executing the statement (``refuse``)."""

T = TypeVar("T")


class Crashed(BaseException):
    """The worker crashed. Not an `Exception`, so that production code cannot catch it and continue."""


def _names(*modules: ModuleType) -> dict[str, str]:
    return {
        value: name.strip("_").lower()
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, str) and name.startswith("_") and not name.startswith("__")
    }


_STATEMENTS: Final = _names(
    order_acceptance,
    order_ends,
    order_parts,
    order_records,
    activations,
    budgets,
    cancel,
    claim,
    compaction,
    effects,
    fairness,
    finish,
    holds,
    journal,
    leases,
    open_trees,
    outbox,
    release,
    resume,
    scheduled,
    spawning,
    submit,
    suspend,
    tree_agents,
    tree_locking,
    tree_messages,
    trigger_due,
    trigger_firing,
    trigger_gates,
    trigger_outcomes,
    waits,
)


def statement_name(query: str) -> str:
    """Return the name of a statement of the protocol; ``other`` for all else."""
    return _STATEMENTS.get(query, "other")


@dataclass(slots=True)
class _Planned:
    statement: str
    fault: Fault
    countdown: int


class FaultInjector:
    """The faults of one worker's connections.

    Attributes:
        dead: The worker crashed: none of its requests reaches a server any more.
        redis_away: Redis is unavailable to this worker.
        log: Names of the executed statements, in order.
        stepping: Every statement waits for `step`, except those in `free`.
        waiting: The statement that waits, if any.
    """

    free = frozenset({"renew"})

    def __init__(self) -> None:
        self.dead = False
        self.redis_away = False
        self.log: list[str] = []
        self.stepping = False
        self.waiting: str | None = None
        self._planned: list[_Planned] = []
        self._next: Fault | None = None
        self.stopped = asyncio.Event()
        """Set while a statement waits."""
        self._go = asyncio.Event()
        self._held: set[str] = set()

    def plan(self, fault: Fault, statement: str, *, nth: int = 1) -> None:
        """Inject a fault at the nth execution of a statement from now on."""
        self._planned.append(_Planned(statement, fault, nth))

    def hold(self, statement: str) -> None:
        """Block the worker before a statement until `step`."""
        self._held.add(statement)

    async def reached(self, timeout_s: float = 60.0) -> str:
        """Wait until a statement is blocked, and return its name."""
        async with asyncio.timeout(timeout_s):
            await self.stopped.wait()
        assert self.waiting is not None
        return self.waiting

    def step(self, fault: Fault | None = None) -> None:
        """Continue the blocked statement, or inject a fault into it."""
        assert self.waiting is not None, "no statement waits"
        self._held.discard(self.waiting)
        self._next = fault
        self.waiting = None
        self.stopped.clear()
        self._go.set()

    def check(self) -> None:
        """Raise `Crashed` if the worker is dead."""
        if self.dead:
            raise Crashed

    async def around(self, query: str, execute: Callable[[], Awaitable[T]]) -> T:
        """Execute a statement that commits on its own, with the fault planned for it."""
        result, fault = await self.within(query, execute)
        self.after(fault)
        return result

    async def within(
        self, query: str, execute: Callable[[], Awaitable[T]], *, first: bool = True
    ) -> tuple[T, Fault | None]:
        """Execute a statement, and return its result and the fault to inject after the commit.

        Args:
            query: The statement.
            execute: Does it.
            first: Whether it may block. Later statements of a transaction may not: the transaction holds locks.
        """
        self.check()
        name = statement_name(query)
        fault = (await self._wait(name) if first else None) or self._due(name)
        if fault == "crash_before":
            self.dead = True
        self.check()
        if fault == "refuse":
            raise Unavailable("The test made the database unavailable.", may_be_written=False)
        result = await execute()
        self.log.append(name)
        return result, fault

    def after(self, fault: Fault | None) -> None:
        """Inject the fault that follows a commit."""
        if fault == "crash_after":
            self.dead = True
            raise Crashed
        if fault == "lose_reply":
            raise OutcomeUnknown("The test dropped the reply.", may_be_written=True)

    async def _wait(self, name: str) -> Fault | None:
        if not (name in self._held or (self.stepping and name not in self.free)):
            return None
        self._go.clear()
        self.waiting = name
        self.stopped.set()
        await self._go.wait()
        fault, self._next = self._next, None
        return fault

    def _due(self, name: str) -> Fault | None:
        for planned in self._planned:
            if planned.statement == name:
                planned.countdown -= 1
                if planned.countdown == 0:
                    self._planned.remove(planned)
                    return planned.fault
        return None


class _FaultInjectingConnection:
    """A connection that passes every statement through the fault injector."""

    def __init__(self, connection: Connection, faults: FaultInjector) -> None:
        self._connection = connection
        self._faults = faults

    async def fetch(self, statement: str, /, **values: Any) -> list[Row]:
        return await self._pass(statement, lambda: self._connection.fetch(statement, **values))

    async def fetchrow(self, statement: str, /, **values: Any) -> Row | None:
        return await self._pass(statement, lambda: self._connection.fetchrow(statement, **values))

    async def fetchval(self, statement: str, /, **values: Any) -> Any:
        return await self._pass(statement, lambda: self._connection.fetchval(statement, **values))

    async def execute(self, statement: str, /, **values: Any) -> str:
        return await self._pass(statement, lambda: self._connection.execute(statement, **values))

    async def _pass(self, query: str, execute: Callable[[], Awaitable[T]]) -> T:
        return await self._faults.around(query, execute)


class _FaultInjectingTransaction(_FaultInjectingConnection):
    """A transaction; the fault injector treats it as one statement that commits at the end."""

    def __init__(self, connection: Connection, faults: FaultInjector) -> None:
        super().__init__(connection, faults)
        self._first = True
        self.fault: Fault | None = None

    async def _pass(self, query: str, execute: Callable[[], Awaitable[T]]) -> T:
        first, self._first = self._first, False
        result, fault = await self._faults.within(query, execute, first=first)
        self.fault = fault or self.fault
        return result


class FaultInjectingDatabase(Database):
    """The database of one worker: another database's pool behind a fault injector."""

    def __init__(self, database: Database, faults: FaultInjector) -> None:
        self._inner = database
        self._faults = faults

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """Lend a connection behind the fault injector."""
        self._faults.check()
        async with self._inner.connection() as connection:
            yield _FaultInjectingConnection(connection, self._faults)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """Lend a transaction behind the fault injector."""
        self._faults.check()
        async with self._inner.transaction() as connection:
            transaction = _FaultInjectingTransaction(connection, self._faults)
            yield transaction
        self._faults.after(transaction.fault)

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Open a snapshot, which reads only."""
        self._faults.check()
        return self._inner.snapshot()


def fault_injecting_redis(redis_url: str, faults: FaultInjector) -> Redis:
    """Return a Redis client of one worker, which the fault injector can disconnect."""
    redis = client_of(redis_url)
    lend = redis.connection_pool.get_connection

    async def get_connection(*args: Any, **kwargs: Any) -> Any:
        faults.check()
        if faults.redis_away:
            raise RedisConnectionError("The test made Redis unavailable.")
        return await lend(*args, **kwargs)

    redis.connection_pool.get_connection = get_connection
    return redis
