"""Retries writes while the database is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from nova_workers.base.errors import RunLost, Unavailable
from nova_workers.contracts.abort import AbortSignal
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0

T = TypeVar("T")


async def persist(
    database: Database, abort: AbortSignal, write: Callable[[Connection], Awaitable[T]], *, transaction: bool = False
) -> T:
    """Retry a fenced write, or a read, while the database is unavailable, until the lease is lost.

    A write must be idempotent: an attempt may have been committed although its reply was lost.

    Args:
        abort: Aborted with reason `lost` when the lease is lost.
        write: One statement, or several with `transaction`.
        transaction: Run the statements in one transaction.

    Raises:
        RunLost: Another claim holds the run, or the lease was lost.
    """

    async def attempt() -> T:
        async with database.transaction() if transaction else database.connection() as connection:
            return await write(connection)

    return await _repeat(abort, attempt)


async def persist_work(
    work: Work, abort: AbortSignal, write: Callable[[UnitOfWork], Awaitable[T]], *, transaction: bool = True
) -> T:
    """Retry a fenced unit of work as `persist` retries a statement. What follows its commit is done once.

    After a commit in doubt, that is what the repeated `write` says: what it does not find again is the reconciler's.

    Args:
        work: Begins the units of work.
        abort: As for `persist`.
        write: Writes in the unit, and says what is to follow.
        transaction: False where `write` writes by one statement, which commits by itself.

    Raises:
        RunLost: Another claim holds the run, or the lease was lost.
    """

    async def attempt() -> T:
        async with work.begin() if transaction else work.begin_statement() as tx:
            return await write(tx)

    return await _repeat(abort, attempt)


async def _repeat(abort: AbortSignal, attempt: Callable[[], Awaitable[T]]) -> T:
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            if abort.reason == "lost":
                raise RunLost("The lease expired while the database was unavailable.") from error
            _log.warning("run.write_waits", outage="postgres", pause_s=pause_s, error=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
