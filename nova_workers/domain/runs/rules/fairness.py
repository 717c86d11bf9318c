"""Weighted fair queueing: which tenant's run gets the next worker slot when a process has more doorbells than slots.

Each process schedules its own slots and keeps its own counts. That makes a fleet of any size fair without shared state
that could be lost or contended.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from nova_workers.base.vocabulary import RUN_QUEUES
from nova_workers.contracts.installs import NOTHING_INSTALLED
from nova_workers.contracts.runs import COMMON_POOL, Doorbell, WorkerPool
from nova_workers.domain.runs.rules.installs import Installs
from nova_workers.domain.runs.rules.suspects import SuspectRuns
from nova_workers.domain.runs.sql.fairness import Entitled, Served, find_entitled
from nova_workers.ledger.work import Work

_AGENTS_REMEMBERED = 512


class FairScheduler:
    """Counts how much each tenant was served (stride scheduling). Drops counts that no longer affect a choice."""

    def __init__(self) -> None:
        self._floor = 0.0
        self._dealt: dict[str, float] = {}
        self._agents: OrderedDict[str, int] = OrderedDict()
        self._turns = 0
        self._last: str | None = None

    @property
    def served(self) -> Served:
        """The counts so far."""
        return Served(self._floor, dict(self._dealt), dict(self._agents), self._last)

    def record(self, entitled: Entitled) -> None:
        """Count a slot for a tenant and its agent."""
        self._turns += 1
        self._last = entitled.tenant_id
        # The floor is the count of the tenant served last: a new or returning tenant starts there, not at zero.
        self._floor = max(self._floor, entitled.dealt)
        self._dealt[entitled.tenant_id] = entitled.dealt + 1 / entitled.weight
        self._dealt = {tenant: dealt for tenant, dealt in self._dealt.items() if dealt > self._floor}
        agent = f"{entitled.tenant_id}/{entitled.agent_id}"
        self._agents[agent] = self._turns
        self._agents.move_to_end(agent)
        if len(self._agents) > _AGENTS_REMEMBERED:
            self._agents.popitem(last=False)


class FairQueue:
    """Chooses the thread to serve next, where more doorbells wait than this process has free slots."""

    def __init__(
        self,
        work: Work,
        *,
        pool: WorkerPool = COMMON_POOL,
        suspects: SuspectRuns | None = None,
        installs: Installs | None = None,
    ) -> None:
        """Choose among the tenants of a pool of workers.

        Args:
            work: Rings the doorbells of another pool that another thread's run was served for.
            suspects: Executes suspect runs, which then need no slot; None chooses them like any other.
            installs: Passes on the doorbells of threads that need code of users; None has none, and passes none on.
        """
        self._installs = installs
        self._suspects = suspects
        self._work = work
        self.pool = pool
        self._scheduler = FairScheduler()
        self._choosing = asyncio.Lock()
        self._chosen: set[str] = set()

    @asynccontextmanager
    async def next(self, bell: Doorbell, tried: set[str]) -> AsyncGenerator[Doorbell]:
        """Choose the thread to serve in the slot that a doorbell occupies.

        Other slots of this process do not choose the same thread while the block lasts. If no thread is entitled, or
        the doorbell's own thread has a run that needs no slot, yield the doorbell itself.

        Args:
            bell: The doorbell.
            tried: Threads that had nothing to claim.
        """
        elsewhere = frozenset[str]() if self._suspects is None else self._suspects.thread_ids
        async with self._choosing:
            async with self._work.database.connection() as connection:
                entitled = await find_entitled(
                    connection,
                    bell.run_queue,
                    self._scheduler.served,
                    pool=self.pool,
                    excluded_threads=tried | self._chosen | elsewhere,
                    doorbell_thread_id=None if bell.thread_id in tried else bell.thread_id,
                    with_suspects=self._suspects is None,
                    installation=NOTHING_INSTALLED if self._installs is None else self._installs.installation,
                )
            if entitled is None or entitled.needs_no_slot:
                chosen = bell
            else:
                chosen = entitled.bell
                if entitled.doorbell_pool not in (None, self.pool.name):
                    self._work.ring([bell.in_pool(entitled.doorbell_pool)])
                self._scheduler.record(entitled)
                self._chosen.add(chosen.thread_id)
                if entitled.doorbell_needs_code and self._installs is not None and chosen.thread_id != bell.thread_id:
                    # In exchange for it another thread is served: what is left may not meet a worker with the code.
                    await self._installs.pass_on(bell)
        try:
            yield chosen
        finally:
            self._chosen.discard(chosen.thread_id)

    async def after_cap(self, tenant_id: str) -> Doorbell | None:
        """Return a doorbell for a run that fits now that a run of a capped tenant or agent has ended."""
        async with self._work.database.connection() as connection:
            for queue in RUN_QUEUES:
                entitled = await find_entitled(connection, queue, pool=None, tenant_id=tenant_id)
                if entitled is not None:
                    return entitled.bell
        return None
