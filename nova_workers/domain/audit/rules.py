"""Seals the audit log: chains what was committed since, and sends the heads to webhooks that get the log.

Sealing is no part of a request: two that commit at once would wait for each other's place in the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nova_workers.base.ids import new_id
from nova_workers.contracts.deliveries import AUDIT_HEAD, NewDelivery
from nova_workers.domain.audit.sql.chains import SealedChain, seal
from nova_workers.domain.delivery.sql.outbox import add_deliveries
from nova_workers.domain.webhooks.sql.endpoints import list_subscriptions
from nova_workers.ledger.database import Connection, Database

_ROWS: Final = 1_000
"""Of one batch, for the time of which one transaction is open (decision 0043 has it measured)."""
_BATCHES: Final = 20
"""The limit of a tick: a long log that was never sealed does not hold up other ticks."""


class AuditSeals:
    """Seals records of all tenants. Of several that tick at once, one works."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def tick(self) -> int:
        """Seal what is committed, and return how many records. A tick that crashes sealed whole batches.

        Raises:
            Unavailable: The database cannot be reached; the next tick continues.
        """
        sealed = 0
        for _ in range(_BATCHES):
            async with self._database.transaction() as connection:
                chains = await seal(connection, limit=_ROWS)
                if chains:
                    await _announce(connection, chains)
            records = sum(chain.records for chain in chains)
            sealed += records
            if records < _ROWS:
                break
        return sealed


async def _announce(connection: Connection, chains: Sequence[SealedChain]) -> None:
    """Put heads into the outbox, for the webhooks that get the audit log."""
    heads = {
        chain.tenant_id: {"seq": chain.seq, "hash": chain.hash, "sealed_at": chain.sealed_at.isoformat()}
        for chain in chains
    }
    deliveries = [
        NewDelivery(
            new_id("dlv"),
            subscribed.tenant_id,
            "audit_recorded",
            subscribed.id,
            {"ids": [], AUDIT_HEAD: heads[subscribed.tenant_id]},
            webhook_id=subscribed.id,
        )
        for subscribed in await list_subscriptions(connection, list(heads))
        if "audit_recorded" in subscribed.kinds
    ]
    await add_deliveries(connection, deliveries)
