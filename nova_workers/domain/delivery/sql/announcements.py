"""Announces events to the webhooks that subscribe to them, in the transactions in which they happen."""

from __future__ import annotations

from dataclasses import replace

from nova_workers.base.ids import new_id
from nova_workers.contracts.deliveries import INBOX, NewDelivery
from nova_workers.domain.delivery.sql.outbox import add_deliveries
from nova_workers.domain.webhooks.sql.endpoints import list_subscriptions
from nova_workers.ledger.database import Connection


async def announce(transaction: Connection, event: NewDelivery, *, notice: str | None = None) -> bool:
    """Add a delivery of an event for each webhook that subscribes to it. Return whether anything was added.

    Args:
        transaction: In which it happens.
        event: Its id and target are not used: each delivery has its own.
        notice: What the inbox is to have for a person, beside.
    """
    deliveries = [
        replace(event, id=new_id("dlv"), target=one.id, webhook_id=one.id)
        for one in await list_subscriptions(transaction, {event.tenant_id})
        if one.wants(event.tenant_id, event.kind, event.agent_id)
    ]
    if notice is not None:
        payload = {"text": notice}
        deliveries.append(replace(event, id=new_id("dlv"), kind="notification", target=INBOX, payload=payload))
    await add_deliveries(transaction, deliveries)
    return bool(deliveries)
