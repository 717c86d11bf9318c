"""The secrets of a tenant and of the fleet by value: no result of a work order may contain one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import structlog

from nova_workers.base.errors import Conflict
from nova_workers.base.observability.redactor import Redactor
from nova_workers.domain.orders.sql.secrets import list_usable_secrets
from nova_workers.domain.secrets.rules.vault import Sealed, Vault
from nova_workers.domain.secrets.sql import fetch_secrets
from nova_workers.ledger.database import Connection

_log = structlog.get_logger(__name__)

_MOST_TENANTS: Final = 64
_Versions = tuple[tuple[str, str, datetime], ...]


class KnownSecrets:
    """Decrypts secrets, and remembers those of recent tenants until a secret of theirs changes."""

    def __init__(self, vault: Vault, fleet_secrets: Mapping[str, str]) -> None:
        self._vault = vault
        self._fleet_secrets = dict(fleet_secrets)
        self._opened: dict[str, tuple[_Versions, Redactor]] = {}

    async def of_tenant(self, connection: Connection, tenant_id: str) -> Redactor:
        """Return a redactor of the secrets of a tenant and of the fleet, except those that cannot be decrypted."""
        sealed = [
            (row.name, row.name, Sealed(row.key_id, row.ciphertext), row.updated_at)
            for row in await fetch_secrets(connection, tenant_id)
        ]
        sealed += [
            (order_secret_place(row.id), "of work orders", Sealed(row.key_id, row.ciphertext), row.created_at)
            for row in await list_usable_secrets(connection, tenant_id)
        ]
        versions = tuple((place, each.key_id, at) for place, _, each, at in sealed)
        found = self._opened.pop(tenant_id, None)
        if found is None or found[0] != versions:
            known = Redactor(self._fleet_secrets)
            for place, name, each, _ in sealed:
                try:
                    known.learn(name, self._vault.open(tenant_id, place, each))
                except Conflict as error:
                    _log.warning("work_orders.secret_unreadable", secret=name, key_id=each.key_id, why=error.message)
            found = (versions, known)
        while len(self._opened) >= _MOST_TENANTS:
            del self._opened[next(iter(self._opened))]
        self._opened[tenant_id] = found
        return found[1]


def order_secret_place(secret_id: str) -> str:
    """Return the name of a secret of work orders in the vault. No secret of agents has it: theirs are in capitals."""
    return f"work order secret {secret_id}"
