"""Deliveries in the outbox and the inbox. A row is inserted in the transaction of the change that it reports."""

from __future__ import annotations

from nova_workers.base.errors import IllegalTransition, existing
from nova_workers.base.ids import new_id
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.deliveries import INBOX, DeliveryKind, DeliveryStatus, DeliveryView, Sender
from nova_workers.ledger.database import Connection

_COLUMNS = f"""
id, kind, status, target, agent_id, thread_id, run_id, payload, error, created_at, delivered_at, webhook_id, attempts,
response_status, CASE WHEN status = 'pending' AND target <> '{INBOX}' THEN due_at END AS next_try_at
"""

# Serializes tool calls of one run that count its deliveries before they add one.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('outbox:' || :run_id, 0))"

_PAYLOADS = f"""
SELECT id, payload FROM deliveries
 WHERE tenant_id = :tenant_id AND run_id = :run_id AND kind = :kind AND target = '{INBOX}'
"""

_ADD = """
INSERT INTO deliveries (id, tenant_id, run_id, agent_id, thread_id, kind, target, payload)
VALUES (:delivery_id, :tenant_id, :run_id, :agent_id, :thread_id, :kind, :target, :payload)
"""

# `field` is the payload's field that holds the id.
_WITHDRAW = """
DELETE FROM deliveries
 WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND kind = :kind AND status = 'pending'
   AND payload ->> :field::text = :value
"""

# One statement per set of filters, so that each is planned for the index that fits it.
_LIST = f"""
SELECT {_COLUMNS} FROM deliveries
 WHERE tenant_id = :tenant_id AND target = :target AND (:before::text IS NULL OR id < :before)
   AND (:kind::text IS NULL OR kind = :kind) AND (:status::text IS NULL OR status = :status)
 ORDER BY id DESC
 LIMIT :limit
"""
_LIST_OF_AGENT = f"""
SELECT {_COLUMNS} FROM deliveries
 WHERE tenant_id = :tenant_id AND target = :target AND agent_id = :agent_id AND (:before::text IS NULL OR id < :before)
   AND (:kind::text IS NULL OR kind = :kind) AND (:status::text IS NULL OR status = :status)
 ORDER BY id DESC
 LIMIT :limit
"""

_GET = f"SELECT {_COLUMNS} FROM deliveries WHERE tenant_id = :tenant_id AND id = :delivery_id"

# Resets a delivery that ended. It keeps its id, so that receivers can recognize a repeat. One that waits for its next
# attempt keeps its count, and is due now; one without an error may be under way.
_REPLAY = f"""
UPDATE deliveries
   SET status = 'pending', attempts = CASE WHEN status = 'pending' THEN attempts ELSE 0 END, due_at = now(),
       delivered_at = NULL, response_status = NULL, error = NULL
 WHERE tenant_id = :tenant_id AND id = :delivery_id AND target <> '{INBOX}'
   AND (status IN ('delivered', 'failed') OR status = 'pending' AND error IS NOT NULL)
RETURNING {_COLUMNS}
"""

# A question or approval is closed by the end of its wait, never here.
_CLOSE = f"""
UPDATE deliveries SET status = 'closed'
 WHERE tenant_id = :tenant_id AND id = :delivery_id AND target = '{INBOX}' AND status = 'pending'
   AND kind IN ('notification', 'file', 'note')
RETURNING {_COLUMNS}
"""


async def lock_outbox_of_run(connection: Connection, run_id: str) -> None:
    """Lock the deliveries of a run until the transaction ends."""
    await connection.execute(_LOCK, run_id=run_id)


async def payloads_of_run(connection: Connection, sender: Sender, kind: DeliveryKind) -> dict[str, JsonObject]:
    """Return the payloads of a run's inbox items of a kind, by delivery id."""
    rows = await connection.fetch(_PAYLOADS, tenant_id=sender.tenant_id, run_id=sender.run_id, kind=kind)
    return {row["id"]: row["payload"] for row in rows}


async def add_delivery(
    connection: Connection, sender: Sender, kind: DeliveryKind, payload: JsonObject, *, target: str
) -> str:
    """Add a delivery to the outbox, and return its id."""
    delivery_id = new_id("dlv")
    await connection.execute(
        _ADD,
        delivery_id=delivery_id,
        tenant_id=sender.tenant_id,
        run_id=sender.run_id,
        agent_id=sender.agent_id,
        thread_id=sender.thread_id,
        kind=kind,
        target=target,
        payload=payload,
    )
    return delivery_id


async def withdraw(
    connection: Connection, tenant_id: str, agent_id: str, kind: DeliveryKind, *, field: str, named: str
) -> None:
    """Delete pending deliveries of an agent whose payload has the value `named` in `field`."""
    await connection.execute(_WITHDRAW, tenant_id=tenant_id, agent_id=agent_id, kind=kind, field=field, value=named)


async def list_deliveries(
    connection: Connection,
    tenant_id: str,
    *,
    limit: int,
    target: str = INBOX,
    kind: DeliveryKind | None = None,
    status: DeliveryStatus | None = None,
    agent_id: str | None = None,
    before: str | None = None,
) -> list[DeliveryView]:
    """Return deliveries to a target, newest first, from before the delivery `before`."""
    given = {
        "tenant_id": tenant_id,
        "before": before,
        "kind": kind,
        "status": status,
        "limit": limit,
        "target": target,
    }
    if agent_id is None:
        rows = await connection.fetch(_LIST, **given)
    else:
        rows = await connection.fetch(_LIST_OF_AGENT, **given, agent_id=agent_id)
    return [DeliveryView(**row) for row in rows]


async def get_delivery(connection: Connection, tenant_id: str, delivery_id: str) -> DeliveryView:
    """Return a delivery.

    Raises:
        NotFound: There is none in this tenant.
    """
    row = existing(
        await connection.fetchrow(_GET, tenant_id=tenant_id, delivery_id=delivery_id), "delivery", delivery_id
    )
    return DeliveryView(**row)


async def replay_delivery(connection: Connection, tenant_id: str, delivery: DeliveryView) -> DeliveryView:
    """Send a delivery that ended again, or one that waits for its next attempt at once.

    Raises:
        IllegalTransition: It is in the inbox, or on its way.
    """
    row = await connection.fetchrow(_REPLAY, tenant_id=tenant_id, delivery_id=delivery.id)
    if row is not None:
        return DeliveryView(**row)
    where = "is in the inbox, which is not sent anywhere" if delivery.target == INBOX else "is on its way already"
    raise IllegalTransition(f"The delivery {delivery.id!r} {where}.", delivery_id=delivery.id)


async def close_delivery(connection: Connection, tenant_id: str, delivery_id: str) -> DeliveryView:
    """Close an inbox item that needs no answer. Copies for webhooks and channels are sent all the same. Idempotent.

    Raises:
        NotFound: There is no such delivery in this tenant.
        IllegalTransition: It is a question or an approval, or not in the inbox.
    """
    row = await connection.fetchrow(_CLOSE, tenant_id=tenant_id, delivery_id=delivery_id)
    if row is not None:
        return DeliveryView(**row)
    delivery = await get_delivery(connection, tenant_id, delivery_id)
    if delivery.status == "closed":
        return delivery
    if delivery.target != INBOX:
        why = f"goes to {delivery.target!r}; only inbox items can be closed"
    else:
        why = f"is of kind {delivery.kind!r}, which closes when it is answered; answer run {delivery.run_id!r}"
    raise IllegalTransition(f"The delivery {delivery_id!r} {why}.", delivery_id=delivery_id)
