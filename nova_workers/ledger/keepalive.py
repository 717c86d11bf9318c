"""Keeps a transaction that waits for its input from being ended as idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from nova_workers.base.stopping import stop_tasks
from nova_workers.ledger.database import Connection

_EVERY_S = 5.0
"""Several times in the time after which Postgres ends an idle transaction (see `sessions`)."""


@asynccontextmanager
async def kept_awake(connection: Connection) -> AsyncGenerator[asyncio.Lock]:
    """Send a statement every few seconds on the connection of a transaction, while the block waits.

    The bound on idle transactions stays: one whose process was stopped is still ended, and releases its locks.

    Yields:
        The block holds this lock while it uses the connection.
    """
    in_use = asyncio.Lock()
    asking = asyncio.create_task(_ask(connection, in_use))
    try:
        yield in_use
    finally:
        # Not in the middle of a statement, whose cancellation would fail the transaction.
        async with in_use:
            await stop_tasks([asking])


async def _ask(connection: Connection, in_use: asyncio.Lock) -> None:
    while True:
        await asyncio.sleep(_EVERY_S)
        async with in_use:
            # If it fails, so does the block's next statement.
            await connection.execute("SELECT 1")
