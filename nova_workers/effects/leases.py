"""The leases of claimed effects: taken with the claim, renewed while handlers work, ended by a result or a release."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog

from nova_workers.clock import Clock
from nova_workers.config import RunSettings
from nova_workers.errors import NovaError, Unavailable
from nova_workers.ledger.database import Database
from nova_workers.ledger.runs.effects import (
    DueEffect,
    EffectEnd,
    claim_effects,
    release_effects,
    renew_effects,
    settle_effects,
)

__all__ = ["EffectLeases"]

_RELEASE_S: Final = 2.0
"""Time limit to release effects when the worker stops."""

_SETTLE_PAUSE_S: Final = 1.0

_log = structlog.get_logger(__name__)


class EffectLeases:
    """Holds effects for one process, as long as runs are held."""

    def __init__(self, database: Database, settings: RunSettings, clock: Clock) -> None:
        self._database = database
        self._lease = timedelta(seconds=settings.lease_ttl_s)
        self._renew_s = settings.lease_renew_s
        self._clock = clock

    async def claim(
        self, wanted: Sequence[tuple[str, int]], *, max_attempts: int
    ) -> tuple[list[DueEffect], list[DueEffect]]:
        """Claim due effects; see `claim_effects`."""
        async with self._database.connection() as connection:
            return await claim_effects(connection, wanted, max_attempts=max_attempts, lease=self._lease)

    async def keep(self, work: Mapping[asyncio.Task[None], Sequence[DueEffect]]) -> None:
        """Wait for every batch, and renew the leases of those that take long."""
        unfinished = set(work)
        while unfinished:
            _, unfinished = await asyncio.wait(unfinished, timeout=self._renew_s)
            effects = [effect for task in unfinished for effect in work[task]]
            if not effects:
                continue
            try:
                async with asyncio.timeout(self._renew_s), self._database.connection() as connection:
                    await renew_effects(connection, effects, lease=self._lease)
            except (NovaError, TimeoutError) as error:
                _log.warning("effects.not_renewed", effects=len(effects), error=str(error))

    async def settle(self, ends: Sequence[EffectEnd]) -> None:
        """Record how attempts ended; again while the database is unavailable, until their leases have expired.

        Raises:
            Unavailable: They are due again.
        """
        until_s = self._clock.monotonic_s() + self._lease.total_seconds()
        while True:
            try:
                async with self._database.connection() as connection:
                    await settle_effects(connection, ends)
                return
            except Unavailable as error:
                if self._clock.monotonic_s() > until_s:
                    raise
                _log.warning("effects.not_settled", effects=len(ends), error=error.message)
                await asyncio.sleep(_SETTLE_PAUSE_S)

    async def release(self, effects: Sequence[DueEffect]) -> bool:
        """Return effects, due at once, without counting the attempt. False if that failed: their leases expire."""
        try:
            async with asyncio.timeout(_RELEASE_S), self._database.connection() as connection:
                await release_effects(connection, effects)
        except (NovaError, TimeoutError) as error:
            _log.warning("effects.not_released", effects=len(effects), error=str(error))
            return False
        return True
