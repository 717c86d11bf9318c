"""Statements of the runner itself: they need Postgres while another fault may stop it."""

from __future__ import annotations

import asyncio

import asyncpg

_PATIENCE_S = 120.0
_POLL_S = 0.1
_LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
)


async def fetch_past_faults(url: str, statement: str, *values: object) -> list[asyncpg.Record]:
    """Execute a statement once the server takes connections, and again if its session is ended meanwhile.

    So it may be executed twice.

    Raises:
        TimeoutError: The server was away for too long.
    """
    while True:
        connection = await _connected(url)
        try:
            return await connection.fetch(statement, *values)
        except _LOST:
            continue
        finally:
            await connection.close()


async def _connected(url: str) -> asyncpg.Connection:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                return await asyncpg.connect(url, timeout=10)
            except (*_LOST, asyncpg.TooManyConnectionsError):
                await asyncio.sleep(_POLL_S)
