"""Writes that must not be lost to a database that is away for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from nova_workers.contracts.abort import AbortSignal
from nova_workers.errors import RunLost, Unavailable
from nova_workers.ledger.database import Connection, Database

__all__ = ["persist"]

_log = structlog.get_logger(__name__)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0

T = TypeVar("T")


async def persist(
    database: Database, abort: AbortSignal, write: Callable[[Connection], Awaitable[T]], *, transaction: bool = False
) -> T:
    """Run a fenced write, or a read, again and again while the database is away, for as long as the lease may be ours.

    A write must be idempotent: its first attempt may have been committed although its reply was lost.

    Args:
        database: Where to.
        abort: Says when the lease is given up.
        write: One statement, or several with `transaction`.
        transaction: Whether they are one transaction.

    Raises:
        RunLost: The run is not this claim's any more, or the lease keeper gave it up.
    """
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            async with database.transaction() if transaction else database.connection() as connection:
                return await write(connection)
        except Unavailable as error:
            if abort.reason == "lost":
                raise RunLost("The lease ran out while the database was away.") from error
            _log.warning("run.write_waits", pause_s=pause_s, error=str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
