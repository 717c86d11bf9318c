"""Connections that bind values by name: to Postgres itself, and through a pooler."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import asyncpg

from nova_workers.ledger.named_sql import bind
from nova_workers.ledger.sessions import Session

Row = asyncpg.Record
"""One row; values by column name."""


class BoundConnection:
    """A pooled connection that binds values by name."""

    __slots__ = ("_connection", "sent")

    def __init__(self, connection: Session) -> None:
        self._connection = connection
        self.sent: list[str] = []

    async def fetch(self, statement: str, /, **values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        text, arguments = self._next(statement, values)
        return await self._connection.fetch(text, *arguments)

    async def fetchrow(self, statement: str, /, **values: Any) -> Row | None:
        """Run a statement and return its first row."""
        text, arguments = self._next(statement, values)
        return await self._connection.fetchrow(text, *arguments)

    async def fetchval(self, statement: str, /, **values: Any) -> Any:
        """Run a statement and return the first column of its first row."""
        text, arguments = self._next(statement, values)
        return await self._connection.fetchval(text, *arguments)

    async def execute(self, statement: str, /, **values: Any) -> str:
        """Run a statement and return its command tag."""
        text, arguments = self._next(statement, values)
        return await self._connection.execute(text, *arguments)

    async def rows(self, statement: str, /, *, at_once: int, **values: Any) -> AsyncGenerator[Row]:
        """Yield the rows of a statement, with at most `at_once` of them in memory."""
        text, arguments = bind(statement, values)
        async for row in self._connection.cursor(text, *arguments, prefetch=at_once):
            yield row

    def _next(self, statement: str, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
        bound = bind(statement, values)
        self.sent.append(statement)
        return bound


class SharedConnection(BoundConnection):
    """A connection through a pooler: each statement is a transaction, which binds role and tenant for itself."""

    __slots__ = ()

    async def fetch(self, statement: str, /, **values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        async with self._connection.transaction():
            return await super().fetch(statement, **values)

    async def fetchrow(self, statement: str, /, **values: Any) -> Row | None:
        """Run a statement and return its first row."""
        async with self._connection.transaction():
            return await super().fetchrow(statement, **values)

    async def fetchval(self, statement: str, /, **values: Any) -> Any:
        """Run a statement and return the first column of its first row."""
        async with self._connection.transaction():
            return await super().fetchval(statement, **values)

    async def execute(self, statement: str, /, **values: Any) -> str:
        """Run a statement and return its command tag."""
        async with self._connection.transaction():
            return await super().execute(statement, **values)


class SharedSnapshot(BoundConnection):
    """A snapshot through a pooler. Its rows come by a cursor of SQL: the driver's needs a prepared statement."""

    __slots__ = ()

    async def rows(self, statement: str, /, *, at_once: int, **values: Any) -> AsyncGenerator[Row]:
        """Yield the rows of a statement, with at most `at_once` of them in memory."""
        text, arguments = bind(statement, values)
        cursor = f"nova_rows_{len(self.sent)}"
        self.sent.append(statement)
        await self._connection.execute(f"DECLARE {cursor} NO SCROLL CURSOR FOR {text}", *arguments)
        while rows := await self._connection.fetch(f"FETCH {at_once:d} FROM {cursor}"):
            for row in rows:
                yield row
        await self._connection.execute(f"CLOSE {cursor}")
