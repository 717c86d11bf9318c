"""One reader of changes for all streams of a process, while there are any.

It reads every quarter of a second and is not notified: a notification would be one more command of each transition of
a run, and an idle reader costs a statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.errors import Unavailable
from nova_workers.domain.changes.sql import (
    Horizon,
    Position,
    RecordedChange,
    read_changes,
    read_horizon,
    read_new_changes,
)
from nova_workers.ledger.database import Database

_log = structlog.get_logger(__name__)

READ_EVERY_S: Final = 0.25
_AFTER_OUTAGE_S: Final = 1.0
_AT_ONCE: Final = 1_000
"""The changes of one tenant that are read by one statement."""
_QUEUED: Final = 4_000
"""The changes that wait for a slow client."""


class ChangeFeed:
    """The changes of one tenant after a position, for one client."""

    def __init__(self, position: Position) -> None:
        """Begin after a position."""
        self._waiting: list[RecordedChange] = []
        self._unread = asyncio.Event()
        self._reached = position
        self.is_cut = False
        """Whether changes were dropped, since too many waited."""

    def push(self, changes: Sequence[RecordedChange], reached: Position) -> None:
        """Add changes, and note up to which position there are no others."""
        self._reached = reached
        if not changes or self.is_cut:
            return
        if len(self._waiting) + len(changes) > _QUEUED:
            self.is_cut = True
        else:
            self._waiting += changes
        self._unread.set()

    async def take(self) -> Sequence[RecordedChange] | None:
        """Wait for changes, and return all that there are. None once the feed was cut: nothing follows."""
        await self._unread.wait()
        self._unread.clear()
        taken, self._waiting = self._waiting, []
        if not taken and self.is_cut:
            return None
        if self.is_cut:
            self._unread.set()
        return taken

    @property
    def quiet_since(self) -> Position | None:
        """The position up to which everything was taken; None while changes wait."""
        return None if self._waiting or self.is_cut else self._reached


class ChangeHub:
    """Reads the changes of all tenants that are followed. Start `run` before the first `follow`."""

    def __init__(self, database: Database, clock: Clock, *, every_s: float = READ_EVERY_S) -> None:
        self._database = database
        self._clock = clock
        self._every_s = every_s
        self._feeds: dict[str, set[ChangeFeed]] = {}
        """The feeds by tenant."""
        self._reached: dict[str, Position] = {}
        """By tenant with feeds, the position up to which its changes were read."""
        self._read_at: datetime = clock.now()
        self._is_followed = asyncio.Event()

    @property
    def read_at(self) -> datetime:
        """When it last read."""
        return self._read_at

    async def horizon(self) -> Horizon:
        """Return how far changes can be read now.

        Raises:
            Unavailable: The database cannot be reached.
        """
        async with self._database.connection() as connection:
            return await read_horizon(connection)

    async def page(self, tenant_id: str, after: Position, to: Position) -> Sequence[RecordedChange]:
        """Return past changes of a tenant, oldest first: all after a position up to another one, or the first 1,000.

        Raises:
            Unavailable: The database cannot be reached.
        """
        async with self._database.connection() as connection:
            return await read_changes(connection, tenant_id, after=after, to=to, limit=_AT_ONCE)

    @asynccontextmanager
    async def follow(self, tenant_id: str, horizon: Horizon) -> AsyncGenerator[tuple[ChangeFeed, Position]]:
        """Follow a tenant: yield a feed, and the position after which it begins.

        Args:
            horizon: Of a moment ago: the feed begins there, or with the other feeds of the tenant.
        """
        begins = self._reached.setdefault(tenant_id, horizon.position)
        feed = ChangeFeed(begins)
        feeds = self._feeds.setdefault(tenant_id, set())
        feeds.add(feed)
        self._is_followed.set()
        try:
            yield feed, begins
        finally:
            feeds.discard(feed)
            if not feeds:
                del self._feeds[tenant_id], self._reached[tenant_id]
            if not self._feeds:
                self._is_followed.clear()

    async def run(self) -> None:
        """Read until canceled, while there are feeds."""
        while True:
            await self._is_followed.wait()
            try:
                is_behind = await self._read()
                await asyncio.sleep(0 if is_behind else self._every_s)
            except Unavailable as error:
                _log.warning("changes.database_unavailable", outage="postgres", error=str(error))
                await asyncio.sleep(_AFTER_OUTAGE_S)
            except Exception:
                _log.exception("changes.failed")
                await asyncio.sleep(_AFTER_OUTAGE_S)

    async def _read(self) -> bool:
        """Read once, and return whether there is more."""
        followed = list(self._reached.items())
        # Not later than what the database's clock gives to changes that are not read yet.
        now = self._clock.now()
        async with self._database.connection() as connection:
            oldest, found = await read_new_changes(connection, followed, limit=_AT_ONCE)
        self._read_at = now
        is_behind = False
        for (tenant_id, before), changes in zip(followed, found, strict=True):
            # Its feeds may have left meanwhile, and others come, which begin elsewhere.
            if self._reached.get(tenant_id) != before:
                continue
            is_full = len(changes) == _AT_ONCE
            reached = changes[-1].position if is_full else max(oldest, before)
            self._reached[tenant_id] = reached
            for feed in self._feeds[tenant_id]:
                feed.push(changes, reached)
            is_behind |= is_full
        return is_behind
