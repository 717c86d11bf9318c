"""Who is served next by a process whose slots are all busy: turns are dealt out by weight, tenant by tenant.

Each process deals out its own slots and remembers for itself what it dealt; so a fleet of any size is fair, and nothing
is shared that could be lost or fought over.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.contracts.runs import Doorbell
from nova_workers.keys import broker_queue
from nova_workers.ledger.database import Database
from nova_workers.ledger.runs.fairness import Entitled, Served, find_entitled
from nova_workers.vocabulary import RUN_QUEUES

__all__ = ["Dealer", "FairLine"]

_AGENTS_REMEMBERED = 512


class Dealer:
    """Remembers what was dealt to whom (stride scheduling). Forgets what makes no difference."""

    def __init__(self) -> None:
        self._floor = 0.0
        self._dealt: dict[str, float] = {}
        self._agents: OrderedDict[str, int] = OrderedDict()
        self._turns = 0
        self._last: str | None = None

    @property
    def served(self) -> Served:
        """What was served so far."""
        return Served(self._floor, dict(self._dealt), dict(self._agents), self._last)

    def deal(self, entitled: Entitled) -> None:
        """Give a turn to a tenant and its agent."""
        self._turns += 1
        self._last = entitled.tenant_id
        # The floor is where the one stood whose turn it is: who stood lower was not there, and who is new starts here.
        self._floor = max(self._floor, entitled.dealt)
        self._dealt[entitled.tenant_id] = entitled.dealt + 1 / entitled.weight
        self._dealt = {tenant: dealt for tenant, dealt in self._dealt.items() if dealt > self._floor}
        agent = f"{entitled.tenant_id}/{entitled.agent_id}"
        self._agents[agent] = self._turns
        self._agents.move_to_end(agent)
        if len(self._agents) > _AGENTS_REMEMBERED:
            self._agents.popitem(last=False)


class FairLine:
    """Says whether there are more doorbells than free slots, and then whose turn it is."""

    def __init__(self, database: Database, redis: Redis) -> None:
        self._database = database
        self._redis = redis
        self._dealer = Dealer()
        self._choosing = asyncio.Lock()
        self._chosen: set[str] = set()

    async def is_crowded(self, queue: str, free_slots: int) -> bool:
        """Whether more doorbells wait on a queue than this process has free slots.

        As long as there are not, all that wait are served at once, and there is nothing to choose.
        """
        try:
            return await self._redis.llen(broker_queue(queue)) > free_slots
        except RedisError:
            return False

    @asynccontextmanager
    async def next(self, bell: Doorbell, tried: set[str]) -> AsyncGenerator[Doorbell]:
        """Say whom to serve, now that a doorbell says that a slot is free.

        While the block lasts, nobody else of this process is told the same. Where nobody is entitled, and where the
        doorbell's own thread only has a run to be ended, it is the doorbell itself.

        Args:
            tried: Threads that were tried in vain.
        """
        async with self._choosing:
            async with self._database.connection() as connection:
                entitled = await find_entitled(
                    connection,
                    bell.queue,
                    self._dealer.served,
                    passing_over=tried | self._chosen,
                    asked_for=None if bell.thread_id in tried else bell.thread_id,
                )
            if entitled is None or entitled.ends_first:
                chosen = bell
            else:
                chosen = entitled.bell
                self._dealer.deal(entitled)
                self._chosen.add(chosen.thread_id)
        try:
            yield chosen
        finally:
            self._chosen.discard(chosen.thread_id)

    async def after_cap(self, tenant_id: str) -> Doorbell | None:
        """Return whom to ring for when a run of a capped tenant or agent has made room for another."""
        async with self._database.connection() as connection:
            for queue in RUN_QUEUES:
                entitled = await find_entitled(connection, queue, tenant_id=tenant_id)
                if entitled is not None:
                    return entitled.bell
        return None
