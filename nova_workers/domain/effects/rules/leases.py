"""The leases of claimed effects: taken with the claim, renewed while handlers work, ended by a result or a release."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from nova_workers.base.clock import Clock
from nova_workers.base.config import RunSettings
from nova_workers.domain.effects.sql import (
    ClaimedEffects,
    DueEffect,
    EffectEnd,
    WaitingEffect,
    claim_effects,
    release_effects,
    renew_effects,
    settle_effects,
    unclaimed_effects,
)
from nova_workers.domain.runs.rules.work_leases import WorkLeases
from nova_workers.ledger.database import Database


class EffectLeases:
    """Holds effects for one process, as long as runs are held."""

    def __init__(self, database: Database, settings: RunSettings, clock: Clock) -> None:
        self._database = database
        self._leases = WorkLeases[DueEffect](
            database, settings, clock, kind="effects", renew=renew_effects, release=release_effects
        )

    async def claim(self, wanted: Sequence[tuple[str, int]], *, max_attempts: int) -> ClaimedEffects:
        """Claim due effects; see `claim_effects`."""
        async with self._database.connection() as connection:
            return await claim_effects(connection, wanted, max_attempts=max_attempts, lease=self._leases.duration)

    async def unclaimed(self, kind: str, *, after: tuple[datetime, str] | None, limit: int) -> list[WaitingEffect]:
        """Return due effects that no worker has claimed; see `unclaimed_effects`."""
        async with self._database.connection() as connection:
            return await unclaimed_effects(connection, kind, after=after, limit=limit)

    async def keep(self, work: Mapping[asyncio.Task[None], Sequence[DueEffect]]) -> None:
        """Wait for every batch, and renew the leases of those that take long."""
        unfinished = set(work)
        while unfinished:
            _, unfinished = await asyncio.wait(unfinished, timeout=self._leases.renew_s)
            await self._leases.renew([effect for task in unfinished for effect in work[task]])

    async def settle(self, ends: Sequence[EffectEnd]) -> None:
        """Record how attempts ended; see `WorkLeases.settle`."""
        await self._leases.settle(lambda connection: settle_effects(connection, ends))

    async def release(self, effects: Sequence[DueEffect]) -> bool:
        """Return effects; see `WorkLeases.release`."""
        return await self._leases.release(effects)
