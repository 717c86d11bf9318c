"""Routes events to their receivers: one row in the outbox for each webhook, channel and address that subscribes."""

from collections.abc import Mapping, Sequence
from typing import Final

from nova_workers.base.ids import new_id
from nova_workers.contracts.deliveries import DeliveryItem, NewDelivery
from nova_workers.domain.delivery.rules.channels import WEBHOOKS, ChannelRoutes
from nova_workers.domain.delivery.sql.outbox import add_deliveries, take_unrouted
from nova_workers.domain.effects.sql import DueEffect
from nova_workers.domain.runs.sql.ends import RunEnd, read_run_ends
from nova_workers.domain.webhooks.rules.pushes import delivery_to
from nova_workers.domain.webhooks.sql.endpoints import Subscription, list_subscriptions
from nova_workers.domain.webhooks.sql.push_configs import addresses_of_runs
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.work import Work

_BATCH: Final = 200
_QUESTIONS: Final = frozenset({"question", "approval"})


class InboxRouter:
    """Copies new inbox items to the agent's channels and webhooks. The inbox's row does not change."""

    def __init__(self, database: Database, routes: ChannelRoutes) -> None:
        self._database = database
        self._routes = routes

    async def route_due(self) -> int:
        """Route a batch, each item once. Any number of processes may do this concurrently.

        Returns:
            How many items were routed. If it is not 0, there may be more.
        """
        async with self._database.transaction() as connection:
            items = await take_unrouted(connection, limit=_BATCH)
            if items:
                subscriptions = await list_subscriptions(connection, {item.tenant_id for item in items})
                await add_deliveries(connection, [new for item in items for new in self._fan_out(item, subscriptions)])
                asking = {item.run_id: (item.agent_id, item.thread_id) for item in items if item.kind in _QUESTIONS}
                await _notify_clients(connection, asking)
        return len(items)

    def _fan_out(self, item: DeliveryItem, subscriptions: Sequence[Subscription]) -> list[NewDelivery]:
        fanned: list[NewDelivery] = []
        for name in self._routes.of(item.agent_id):
            if name != WEBHOOKS:
                fanned.append(_copy(item, name))
                continue
            fanned += [
                _copy(item, one.id, webhook_id=one.id)
                for one in subscriptions
                if one.wants(item.tenant_id, item.kind, item.agent_id)
            ]
        return fanned


class RunEndEffect:
    """Queues deliveries of a run's end for the webhooks that subscribe to it, and for addresses of the run's own."""

    batch_size = 100
    at_once = 2

    def __init__(self, work: Work, routes: ChannelRoutes) -> None:
        self._work = work
        self._routes = routes

    async def prepare(self, effects: Sequence[DueEffect]) -> None:
        """Do nothing: all of it is one transaction."""

    async def handle(self, effects: Sequence[DueEffect]) -> None:
        """Put the ends of these runs into the outbox. See `EffectHandler.handle`."""
        async with self._work.begin() as tx:
            ends = await read_run_ends(tx.connection, [effect.run_id for effect in effects])
            await self._add_deliveries(tx.connection, ends)
            await _notify_clients(tx.connection, {end.run_id: (end.agent_id, end.thread_id) for end in ends})
            tx.ring_deliveries()

    async def close(self) -> None:
        """Do nothing."""

    async def _add_deliveries(self, connection: Connection, ends: Sequence[RunEnd]) -> None:
        subscriptions = await list_subscriptions(connection, {end.tenant_id for end in ends})
        deliveries = [
            NewDelivery(
                id=new_id("dlv"),
                tenant_id=end.tenant_id,
                kind="run_completed",
                target=one.id,
                payload=end.payload,
                agent_id=end.agent_id,
                thread_id=end.thread_id,
                run_id=end.run_id,
                webhook_id=one.id,
            )
            for end in ends
            if WEBHOOKS in self._routes.of(end.agent_id)
            for one in subscriptions
            if one.wants(end.tenant_id, "run_completed", end.agent_id)
        ]
        await add_deliveries(connection, deliveries)


async def _notify_clients(connection: Connection, runs: Mapping[str | None, tuple[str | None, str | None]]) -> None:
    """Queue a notification of each run, given with its agent and thread, for each address that its clients named."""
    if not runs:
        return
    addresses = await addresses_of_runs(connection, [run_id for run_id in runs if run_id is not None])
    due: list[NewDelivery] = []
    for address in addresses:
        agent_id, thread_id = runs[address.run_id]
        due.append(delivery_to(address, agent_id=agent_id, thread_id=thread_id))
    await add_deliveries(connection, due)


def _copy(item: DeliveryItem, target: str, *, webhook_id: str | None = None) -> NewDelivery:
    return NewDelivery(
        id=new_id("dlv"),
        tenant_id=item.tenant_id,
        kind=item.kind,
        target=target,
        payload=item.payload,
        agent_id=item.agent_id,
        thread_id=item.thread_id,
        run_id=item.run_id,
        webhook_id=webhook_id,
    )
