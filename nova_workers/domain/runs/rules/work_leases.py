"""Leases of claimed work beside runs: effects and deliveries. Taken with the claim, ended by a result or a release."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, Generic, Protocol, TypeVar

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.config import RunSettings
from nova_workers.base.errors import NovaError, Unavailable
from nova_workers.ledger.database import Connection, Database

_RELEASE_S: Final = 2.0
"""Time limit to release work when the worker stops."""
_SETTLE_PAUSE_S: Final = 1.0

_log = structlog.get_logger(__name__)

_Item = TypeVar("_Item")
_Item_contra = TypeVar("_Item_contra", contravariant=True)
_Result = TypeVar("_Result")


class _Renew(Protocol[_Item_contra]):
    async def __call__(self, connection: Connection, items: Sequence[_Item_contra], /, *, lease: timedelta) -> None: ...


class WorkLeases(Generic[_Item]):
    """Keeps the leases of one kind of work for one process, as long as runs are held.

    Attributes:
        duration: How long a lease lasts without a renewal.
        renew_s: How often leases are renewed.
    """

    def __init__(
        self,
        database: Database,
        settings: RunSettings,
        clock: Clock,
        *,
        kind: str,
        renew: _Renew[_Item],
        release: Callable[[Connection, Sequence[_Item]], Awaitable[None]],
    ) -> None:
        """Take the statements of a kind of work. `kind` names it in the log."""
        self.duration = timedelta(seconds=settings.lease_ttl_s)
        self.renew_s = settings.lease_renew_s
        self._database = database
        self._clock = clock
        self._kind = kind
        self._renew = renew
        self._release = release

    async def renew(self, items: Sequence[_Item]) -> None:
        """Renew leases. Best effort: the next renewal may be in time."""
        if not items:
            return
        try:
            async with asyncio.timeout(self.renew_s), self._database.connection() as connection:
                await self._renew(connection, items, lease=self.duration)
        except (NovaError, TimeoutError) as error:
            _log.warning("work.not_renewed", outage="postgres", kind=self._kind, count=len(items), error=str(error))

    async def settle(self, write: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        """Record results of work; again while the database is unavailable, until the leases have expired.

        Args:
            write: One statement, which changes nothing when it is repeated.

        Raises:
            Unavailable: The work is due again.
        """
        until_s = self._clock.monotonic_s() + self.duration.total_seconds()
        while True:
            try:
                async with self._database.connection() as connection:
                    return await write(connection)
            except Unavailable as error:
                if self._clock.monotonic_s() > until_s:
                    raise
                _log.warning("work.not_settled", kind=self._kind, error=str(error))
                await asyncio.sleep(_SETTLE_PAUSE_S)

    async def release(self, items: Sequence[_Item]) -> bool:
        """Return work, due at once, without counting the attempt. False if that failed: its leases expire."""
        try:
            async with asyncio.timeout(_RELEASE_S), self._database.connection() as connection:
                await self._release(connection, items)
        except (NovaError, TimeoutError) as error:
            _log.warning("work.not_released", outage="postgres", kind=self._kind, count=len(items), error=str(error))
            return False
        return True
