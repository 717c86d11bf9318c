"""Deliveries from agents to people, and their limits.

A background run has no other way to reach a person. Each limit is exact, also for concurrent tools, and keeps a faulty
agent from flooding the inbox or the disk.
"""

from nova_workers.base.errors import LimitExceeded
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.deliveries import INBOX, DeliveryKind, Sender
from nova_workers.domain.delivery.sql.deliveries import add_delivery, lock_outbox_of_run, payloads_of_run
from nova_workers.ledger.work import UnitOfWork, Work

MAX_NOTIFICATIONS_PER_RUN = 10
MAX_NOTIFICATION_CHARS = 4_000
"""Fits into one message of the usual messengers."""


async def notify(work: Work, sender: Sender, text: str) -> bool:
    """Notify the person. The same text is sent once per run.

    Args:
        work: Begins the unit of work.
        sender: The run that notifies.
        text: At most `MAX_NOTIFICATION_CHARS`, and storable.

    Returns:
        Whether it was new.

    Raises:
        LimitExceeded: The run has sent its maximum of notifications.
    """
    async with work.begin() as tx:
        return await add_to_outbox(
            tx, sender, "notification", {"text": text}, same="text", at_most=MAX_NOTIFICATIONS_PER_RUN
        )


async def add_to_outbox(
    tx: UnitOfWork,
    sender: Sender,
    kind: DeliveryKind,
    payload: JsonObject,
    *,
    same: str,
    at_most: int,
) -> bool:
    """Add a delivery to the outbox in the caller's unit of work, and ring for it.

    Args:
        tx: The unit of work.
        sender: The run that sends it.
        payload: Its content.
        same: The field of the payload that identifies it: equal ones are added once per run.
        at_most: How many of the kind a run may add.

    Returns:
        Whether it was new.

    Raises:
        LimitExceeded: The run has added its maximum of this kind.
    """
    await lock_outbox_of_run(tx.connection, sender.run_id)
    before = await payloads_of_run(tx.connection, sender, kind)
    if any(given.get(same) == payload[same] for given in before.values()):
        return False
    if len(before) >= at_most:
        raise LimitExceeded(
            f"This run has handed {at_most} of the kind {kind!r} to the user, which is the most. Put the rest into one "
            "note or into your answer.",
            limit=at_most,
        )
    await add_delivery(tx.connection, sender, kind, payload, target=INBOX)
    tx.ring_deliveries()
    return True
