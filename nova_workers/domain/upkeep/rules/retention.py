"""Retention: rows that are older than the operator wants, and threads by their agent's policy.

A tick cycles through its duties, one bounded batch each, until nothing is left or its time is over, so that a duty with
a large backlog does not block the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.config import RetentionSettings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.domain.audit.sql import chains as audit_chains
from nova_workers.domain.threads.sql import purge as thread_purge
from nova_workers.domain.upkeep.sql import cursors as upkeep_cursors
from nova_workers.domain.upkeep.sql import retention as ledger
from nova_workers.domain.upkeep.sql.cursors import Cursor
from nova_workers.domain.upkeep.sql.retention import Aged, ThreadPolicy, WalkedThread
from nova_workers.ledger.database import Database

_ROWS: Final = 1_000
"""The rows of a batch: some 20 ms."""

_THREADS: Final = 200
"""That one step of a walk looks at."""

_LEASE: Final = timedelta(minutes=5)
_ROUND: Final = timedelta(hours=6)
"""The time from the end of a walk over an agent's threads to its next: policies count in days."""

_METRIC: Final[dict[Aged, str]] = {
    "done_effects": "effects",
    "failed_effects": "effects",
    "deliveries": "deliveries",
    "inbox": "deliveries",
    "firings": "firings",
    "work_orders": "work_orders",
}

_log = structlog.get_logger(__name__)

Duty = Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class _Tick:
    """One tick: when it ends, and what it has deleted."""

    until_s: float
    deleted: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, what: str, rows: int) -> None:
        if rows:
            self.deleted[what] = self.deleted.get(what, 0) + rows


class Retention:
    """Deletes what is too old. Any number of instances share the work, skipping rows locked by others."""

    def __init__(
        self,
        database: Database,
        settings: RetentionSettings,
        metrics: Metrics,
        *,
        clock: Clock,
        also: Sequence[Duty] = (),
    ) -> None:
        """Keep what is handed in; nothing is started.

        Args:
            database: Of the ledger. Ages are by its clock.
            settings: What is kept for how long.
            metrics: What was deleted.
            clock: Measures the tick.
            also: What else is deleted: each does one bounded batch and returns whether there is more.
        """
        self._also = also
        self._database = database
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._draining = False

    def drain(self) -> None:
        """Stop after the batch that is under way. On the loop; returns at once."""
        self._draining = True

    async def tick(self) -> dict[str, int]:
        """Delete for a while what is too old. Returns how many rows of what.

        Raises:
            Unavailable: The database cannot be reached; the next tick continues.
        """
        tick = _Tick(self._clock.monotonic_s() + self._settings.every_s * self._settings.busy)
        async with self._database.connection() as connection:
            await upkeep_cursors.add_agent_cursors(connection)
        duties = self._duties(tick)
        while duties and not self._over(tick):
            # Those that found nothing more are done for this tick.
            duties = [duty for duty in duties if not self._over(tick) and await duty()]
        for what, rows in tick.deleted.items():
            self._metrics.retention_deleted.labels(what).inc(rows)
        if tick.deleted:
            _log.info("retention.deleted", **tick.deleted)
        return tick.deleted

    def _duties(self, tick: _Tick) -> list[Duty]:
        kept: dict[Aged, int] = {
            "done_effects": self._settings.done_effects_days,
            "failed_effects": self._settings.failed_effects_days,
            "deliveries": self._settings.deliveries_days,
            "inbox": self._settings.inbox_days,
            "firings": self._settings.firings_days,
            "work_orders": self._settings.work_orders_days,
        }
        duties: list[Duty] = [partial(self._aged, tick, what, days) for what, days in kept.items() if days]
        if self._settings.audit_days:
            duties.append(partial(self._shorten_audit, tick))
        if self._settings.deleted_threads_days:
            duties.append(self._mark)
        # What the policy of an agent says, the operator's settings do not take back.
        return [
            *duties,
            *self._also,
            partial(self._forget_changes, tick),
            self._expire,
            partial(self._walk, tick),
            partial(self._purge, tick),
        ]

    async def _aged(self, tick: _Tick, what: Aged, days: int) -> bool:
        async with self._database.connection() as connection:
            rows = await ledger.delete_aged(connection, what, days=days, limit=_ROWS)
        tick.add(_METRIC[what], rows)
        return rows == _ROWS

    async def _shorten_audit(self, tick: _Tick) -> bool:
        async with self._database.connection() as connection:
            rows = await audit_chains.delete_audit(connection, days=self._settings.audit_days, limit=_ROWS)
        tick.add("audit_events", rows)
        return rows == _ROWS

    async def _forget_changes(self, tick: _Tick) -> bool:
        async with self._database.connection() as connection:
            rows = await ledger.delete_old_changes(connection, limit=_ROWS)
        tick.add("changes", rows)
        return rows == _ROWS

    async def _mark(self) -> bool:
        days = self._settings.deleted_threads_days
        async with self._database.connection() as connection:
            return await thread_purge.mark_deleted(connection, days=days, limit=_ROWS) == _ROWS

    async def _expire(self) -> bool:
        async with self._database.connection() as connection:
            return await thread_purge.expire_ephemeral(connection, limit=_ROWS) == _ROWS

    async def _purge(self, tick: _Tick) -> bool:
        async with self._database.transaction() as transaction:
            deleted = await thread_purge.purge_next(transaction)
        tick.add("threads", deleted.threads)
        tick.add("turns", deleted.turns)
        return deleted.more

    async def _walk(self, tick: _Tick) -> bool:
        """Take the next agent with a policy, and look at its next threads."""
        async with self._database.connection() as connection:
            cursor = await upkeep_cursors.take_cursor(connection, "threads", lease=_LEASE)
            if cursor is None:
                return False
            policy = await ledger.thread_policy(connection, cursor)
            if policy is None:
                await upkeep_cursors.drop_cursor(connection, cursor)
                return True
            walked = await ledger.walk_threads(connection, cursor, policy, limit=_THREADS)
        passed, stopped = await self._apply(tick, cursor, policy, walked)
        whole = len(walked) < _THREADS and not stopped
        async with self._database.connection() as connection:
            await upkeep_cursors.move_cursor(
                connection,
                cursor,
                passed_at=None,
                passed_id=None if whole else passed,
                behind=not whole,
                pause=_ROUND if whole else timedelta(),
            )
        return True

    async def _apply(
        self, tick: _Tick, cursor: Cursor, policy: ThreadPolicy, walked: Sequence[WalkedThread]
    ) -> tuple[str | None, bool]:
        """Do what the policy says. Returns the last thread that is done, and whether the time was over before."""
        if policy.keep == "none":
            due = [thread.id for thread in walked if thread.due]
            async with self._database.connection() as connection:
                await thread_purge.delete_by_policy(connection, cursor.tenant_id, due, days=policy.after_days)
            return (walked[-1].id if walked else cursor.passed_id), False
        passed = cursor.passed_id
        for thread in walked:
            if thread.due and not await self._trim(tick, cursor.tenant_id, thread.id, policy.after_days):
                return passed, True
            passed = thread.id
        return passed, False

    async def _trim(self, tick: _Tick, tenant_id: str, thread_id: str, days: int) -> bool:
        """Cut a thread down to its latest turn. False where the time was over before."""
        while not self._over(tick):
            async with self._database.transaction() as transaction:
                deleted = await thread_purge.trim(transaction, tenant_id, thread_id, days=days)
            tick.add("turns", deleted.turns)
            if not deleted.more:
                return True
        return False

    def _over(self, tick: _Tick) -> bool:
        return self._draining or self._clock.monotonic_s() >= tick.until_s
