"""A tap between one worker and its servers: crashes it, loses replies, holds it back, at a named statement.

The seam is the `Database` and the `Redis` that a worker is handed, so production code has no hooks. Statements are
known by the names of their constants in the ledger: ``claim``, ``commit_step``, ``finish`` and so on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Literal, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from nova_workers.errors import Unavailable
from nova_workers.ledger import scheduled
from nova_workers.ledger.database import Connection, Database, Row
from nova_workers.ledger.delivery import outbox
from nova_workers.ledger.runs import budgets, cancel, claim, fairness, finish, journal, leases, resume, submit
from nova_workers.ledger.threads import compaction
from nova_workers.ledger.triggers import firing as trigger_firing
from nova_workers.ledger.triggers import gates as trigger_gates
from nova_workers.ledger.triggers import outcomes as trigger_outcomes
from nova_workers.ledger.waits import records as waits
from nova_workers.ledger.waits import release, suspend

__all__ = ["Crashed", "Fault", "Tap", "TappedDatabase", "statement_name", "tap_redis"]

Fault = Literal["crash_before", "crash_after", "lose_reply", "refuse"]
"""The worker dies before the statement, or after it was committed and before it heard so; or it lives and hears
that the database is away, after the statement was committed (``lose_reply``) or instead of it (``refuse``)."""

T = TypeVar("T")


class Crashed(BaseException):
    """The worker is dead. Not an `Exception`: no code of ours may catch it and go on."""


def _names(*modules: ModuleType) -> dict[str, str]:
    return {
        value: name.strip("_").lower()
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, str) and name.startswith("_") and not name.startswith("__")
    }


_STATEMENTS: Final = _names(
    budgets,
    cancel,
    claim,
    compaction,
    fairness,
    finish,
    journal,
    leases,
    outbox,
    release,
    resume,
    scheduled,
    submit,
    suspend,
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


class Tap:
    """What one worker's servers do to it.

    Attributes:
        dead: The worker crashed: nothing that it still tries reaches a server.
        redis_away: Redis refuses this worker.
        log: Names of the statements that were let through, in order.
        stepping: Every statement waits for `step`, but those in `free`.
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
        """Have a fault happen at the nth execution of a statement from now on."""
        self._planned.append(_Planned(statement, fault, nth))

    def hold(self, statement: str) -> None:
        """Have the worker wait before a statement, until `step`."""
        self._held.add(statement)

    async def reached(self, timeout_s: float = 5.0) -> str:
        """Wait until a statement waits, and return its name."""
        async with asyncio.timeout(timeout_s):
            await self.stopped.wait()
        assert self.waiting is not None
        return self.waiting

    def step(self, fault: Fault | None = None) -> None:
        """Let the statement that waits go on, or have a fault happen to it."""
        assert self.waiting is not None, "no statement waits"
        self._held.discard(self.waiting)
        self._next = fault
        self.waiting = None
        self.stopped.clear()
        self._go.set()

    def check(self) -> None:
        """Raise `Crashed` in whatever a dead worker still tries."""
        if self.dead:
            raise Crashed

    async def around(self, query: str, execute: Callable[[], Awaitable[T]]) -> T:
        """Execute a statement that is committed by itself, or what is planned for it."""
        result, fault = await self.within(query, execute)
        self.after(fault)
        return result

    async def within(
        self, query: str, execute: Callable[[], Awaitable[T]], *, first: bool = True
    ) -> tuple[T, Fault | None]:
        """Execute a statement, and return what is to happen once it is committed.

        Args:
            query: The statement.
            execute: Does it.
            first: Whether it may wait. The later statements of a transaction may not: they hold locks.
        """
        self.check()
        name = statement_name(query)
        fault = (await self._wait(name) if first else None) or self._due(name)
        if fault == "crash_before":
            self.dead = True
        self.check()
        if fault == "refuse":
            raise Unavailable("The test says that the database is away.")
        result = await execute()
        self.log.append(name)
        return result, fault

    def after(self, fault: Fault | None) -> None:
        """Have happen what happens after a commit."""
        if fault == "crash_after":
            self.dead = True
            raise Crashed
        if fault == "lose_reply":
            raise Unavailable("The test says that the reply was lost.")

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


class _TappedConnection:
    """A connection whose every statement goes through the tap."""

    def __init__(self, connection: Connection, tap: Tap) -> None:
        self._connection = connection
        self._tap = tap

    async def fetch(self, statement: str, /, *args: Any, **values: Any) -> list[Row]:
        return await self._pass(statement, lambda: self._connection.fetch(statement, *args, **values))

    async def fetchrow(self, statement: str, /, *args: Any, **values: Any) -> Row | None:
        return await self._pass(statement, lambda: self._connection.fetchrow(statement, *args, **values))

    async def fetchval(self, statement: str, /, *args: Any, **values: Any) -> Any:
        return await self._pass(statement, lambda: self._connection.fetchval(statement, *args, **values))

    async def execute(self, statement: str, /, *args: Any, **values: Any) -> str:
        return await self._pass(statement, lambda: self._connection.execute(statement, *args, **values))

    async def _pass(self, query: str, execute: Callable[[], Awaitable[T]]) -> T:
        return await self._tap.around(query, execute)


class _TappedTransaction(_TappedConnection):
    """One transaction: to the tap it is one statement, committed at its end."""

    def __init__(self, connection: Connection, tap: Tap) -> None:
        super().__init__(connection, tap)
        self._first = True
        self.fault: Fault | None = None

    async def _pass(self, query: str, execute: Callable[[], Awaitable[T]]) -> T:
        first, self._first = self._first, False
        result, fault = await self._tap.within(query, execute, first=first)
        self.fault = fault or self.fault
        return result


class TappedDatabase(Database):
    """The database of one worker: another's pool, through a tap."""

    def __init__(self, database: Database, tap: Tap) -> None:
        super().__init__("postgresql://unused", pool_size=1)
        self._inner = database
        self._tap = tap

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """Lend a tapped connection."""
        self._tap.check()
        async with self._inner.connection() as connection:
            yield _TappedConnection(connection, self._tap)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """Lend a tapped connection inside a transaction."""
        self._tap.check()
        async with self._inner.transaction() as connection:
            tapped = _TappedTransaction(connection, self._tap)
            yield tapped
        self._tap.after(tapped.fault)


def tap_redis(redis_url: str, tap: Tap) -> Redis:
    """Return a client of one worker's own, which the tap can cut off."""
    redis = Redis.from_url(redis_url)
    lend = redis.connection_pool.get_connection

    async def get_connection(*args: Any, **kwargs: Any) -> Any:
        tap.check()
        if tap.redis_away:
            raise RedisConnectionError("The test says that Redis is away.")
        return await lend(*args, **kwargs)

    redis.connection_pool.get_connection = get_connection
    return redis
