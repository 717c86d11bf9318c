"""Secrets of the keys of work orders: one per tenant, with those before it for a time, so that they rotate."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Final

import structlog

from nova_workers.contracts.http.order_policies import OrderSecretCreate, OrderSecretCreated, OrderSecretView
from nova_workers.contracts.http.secrets import SecretRotation
from nova_workers.errors import Conflict, Unavailable
from nova_workers.ids import new_id
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.orders import secrets as ledger
from nova_workers.workspace.vault import Sealed, Vault

__all__ = ["OrderSecrets"]

_log = structlog.get_logger(__name__)

_SECRET_BYTES: Final = 32
_BATCH: Final = 200
_NAMED: Final = 20
"""Tenants without a secret that the log names."""


class OrderSecrets:
    """Makes, opens and rotates the secrets of all tenants."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    async def create(self, tenant_id: str, body: OrderSecretCreate) -> OrderSecretCreated:
        """Make a tenant's newest secret. Those before it stay usable for a time.

        Raises:
            Conflict: There is no master key.
        """
        secret_id, secret = new_id("wos"), secrets.token_urlsafe(_SECRET_BYTES)
        sealed = self._vault.seal(tenant_id, _place(secret_id), secret)
        async with self._database.transaction() as connection:
            row = await ledger.add_secret(
                connection,
                tenant_id,
                secret_id,
                ciphertext=sealed.ciphertext,
                key_id=sealed.key_id,
                grace=timedelta(hours=body.previous_valid_hours),
            )
        _log.info("work_orders.secret_created", tenant_id=tenant_id, secret_id=secret_id)
        return OrderSecretCreated(**_view(row).model_dump(), secret=secret)

    async def list(self, tenant_id: str) -> list[OrderSecretView]:
        """Return a tenant's usable secrets without their values, newest first."""
        async with self._database.connection() as connection:
            return [_view(row) for row in await ledger.list_usable_secrets(connection, tenant_id)]

    async def delete(self, tenant_id: str, secret_id: str) -> None:
        """Delete a secret: orders with its keys are refused at once.

        Raises:
            NotFound: The tenant has no such secret.
        """
        async with self._database.connection() as connection:
            await ledger.delete_secret(connection, tenant_id, secret_id)

    async def usable(self, connection: Connection, tenant_id: str) -> list[str]:
        """Return the values of a tenant's usable secrets, newest first. Those that cannot be opened are left out."""
        found: list[str] = []
        for row in await ledger.list_usable_secrets(connection, tenant_id):
            try:
                found.append(self._open(row))
            except Conflict as error:
                _log.warning("work_orders.secret_unreadable", secret_id=row.id, key_id=row.key_id, why=error.message)
        return found

    async def report_missing(self) -> None:
        """Log which tenants have no secret, so that their orders are refused; at most 20 of them."""
        try:
            async with self._database.connection() as connection:
                missing = await ledger.tenants_without_secret(connection, limit=_NAMED)
        except Unavailable as error:
            _log.info("work_orders.secrets_unchecked", why=error.message)
            return
        if missing:
            _log.info(
                "work_orders.refused_without_secret",
                tenants=missing,
                hint="`nova orders secrets create` makes the secret of a tenant.",
            )

    async def reseal(self) -> SecretRotation:
        """Encrypt again those secrets of all tenants that are not under the current master key.

        Each batch is a transaction. It may be repeated at any time, and several may work at once.

        Raises:
            Conflict: There is no master key.
        """
        current = self._vault.current_key_id
        rotated = unreadable = 0
        after = ""
        while True:
            async with self._database.transaction() as connection:
                rows = await ledger.lock_secrets_under_other_keys(connection, current, after=after, limit=_BATCH)
                for row in rows:
                    done = await self._reseal(connection, row)
                    rotated, unreadable = rotated + done, unreadable + (not done)
            if not rows:
                break
            after = rows[-1].id
        async with self._database.connection() as connection:
            remaining = await ledger.count_secrets_under_other_keys(connection, current)
        return SecretRotation(key_id=current, rotated=rotated, remaining=remaining, unreadable=unreadable)

    async def _reseal(self, connection: Connection, row: ledger.OrderSecretRow) -> bool:
        try:
            secret = self._open(row)
        except Conflict as error:
            _log.warning("work_orders.secret_not_rotated", secret_id=row.id, key_id=row.key_id, why=error.message)
            return False
        sealed = self._vault.seal(row.tenant_id, _place(row.id), secret)
        await ledger.reseal_secret(connection, row, ciphertext=sealed.ciphertext, key_id=sealed.key_id)
        return True

    def _open(self, row: ledger.OrderSecretRow) -> str:
        return self._vault.open(row.tenant_id, _place(row.id), Sealed(row.key_id, row.ciphertext))


def _place(secret_id: str) -> str:
    """Return the name of a secret in the vault. No secret of agents can have it: their names are in capitals."""
    return f"work order secret {secret_id}"


def _view(row: ledger.OrderSecretRow) -> OrderSecretView:
    return OrderSecretView(id=row.id, created_at=row.created_at, expires_at=row.expires_at)
