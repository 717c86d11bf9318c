"""Secrets of the keys of work orders: one per tenant, with those before it for a time, so that they rotate.

Also encrypts the keys of open orders again when the fleet's master key is replaced.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

import structlog

from nova_workers.base.errors import Conflict, Unavailable
from nova_workers.base.ids import new_id
from nova_workers.contracts.http.order_policies import OrderSecretCreate, OrderSecretCreated, OrderSecretView
from nova_workers.contracts.http.secrets import SecretRotation
from nova_workers.domain.orders.rules.checking.known_secrets import order_secret_place
from nova_workers.domain.orders.rules.sealing import key_place
from nova_workers.domain.orders.sql import secrets as ledger
from nova_workers.domain.secrets.rules.vault import Sealed, Vault
from nova_workers.ledger.database import Connection, Database

_log = structlog.get_logger(__name__)

_SECRET_BYTES: Final = 32
_BATCH: Final = 200
_NAMED: Final = 20
"""Tenants without a secret that the log names."""


class TenantSecrets(NamedTuple):
    """The secrets of a tenant by value.

    Attributes:
        usable: Keys of these are accepted; newest first.
        anchor: The oldest one. The keys under which results are kept are made with it, also once it has expired.
        unreadable: Why not all could be decrypted, if so.
    """

    usable: Sequence[str]
    anchor: str | None
    unreadable: str | None

    def oldest_first(self) -> list[str]:
        """Return the anchor, and then the others."""
        return list(dict.fromkeys([*([] if self.anchor is None else [self.anchor]), *self.usable]))


class _Batch(NamedTuple):
    """What a batch has encrypted again, and its last row; None if it found nothing."""

    rotated: int
    unreadable: int
    last: str | None


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
        sealed = self._vault.seal(tenant_id, order_secret_place(secret_id), secret)
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

    async def of_tenant(self, connection: Connection, tenant_id: str) -> TenantSecrets:
        """Return the values of a tenant's secrets. Those that cannot be opened are left out."""
        usable: list[str] = []
        anchor: str | None = None
        unreadable = self._vault.missing
        for row in await ledger.list_secrets(connection, tenant_id):
            try:
                value = self._open(row)
            except Conflict as error:
                unreadable = error.message
                _log.warning("work_orders.secret_unreadable", secret_id=row.id, key_id=row.key_id, why=error.message)
                continue
            anchor = value
            if row.usable:
                usable.append(value)
        return TenantSecrets(usable, anchor, unreadable)

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
        """Encrypt again what is not under the current master key: secrets of all tenants, and keys of open orders.

        Each batch is a transaction. It may be repeated at any time, and several may work at once.

        Raises:
            Conflict: There is no master key.
        """
        current = self._vault.current_key_id
        rotated = unreadable = 0
        for batch in (self._reseal_secrets, self._reseal_data_keys):
            after: str | None = ""
            while after is not None:
                async with self._database.transaction() as connection:
                    done = await batch(connection, current, after)
                rotated, unreadable, after = rotated + done.rotated, unreadable + done.unreadable, done.last
        async with self._database.connection() as connection:
            remaining = await ledger.count_under_other_keys(connection, current)
        return SecretRotation(key_id=current, rotated=rotated, remaining=remaining, unreadable=unreadable)

    async def _reseal_secrets(self, connection: Connection, current: str, after: str) -> _Batch:
        rows = await ledger.lock_secrets_under_other_keys(connection, current, after=after, limit=_BATCH)
        unreadable = 0
        for row in rows:
            sealed = self._sealed_again(row.tenant_id, order_secret_place(row.id), Sealed(row.key_id, row.ciphertext))
            if sealed is None:
                unreadable += 1
                continue
            await ledger.reseal_secret(connection, row, ciphertext=sealed.ciphertext, key_id=sealed.key_id)
        return _Batch(len(rows) - unreadable, unreadable, rows[-1].id if rows else None)

    async def _reseal_data_keys(self, connection: Connection, current: str, after: str) -> _Batch:
        rows = await ledger.lock_data_keys_under_other_keys(connection, current, after=after, limit=_BATCH)
        unreadable = 0
        for row in rows:
            sealed = self._sealed_again(row.tenant_id, key_place(row.id), Sealed(row.data_key_id, row.data_key))
            if sealed is None:
                unreadable += 1
                continue
            await ledger.reseal_data_key(connection, row, data_key=sealed.ciphertext, data_key_id=sealed.key_id)
        return _Batch(len(rows) - unreadable, unreadable, rows[-1].id if rows else None)

    def _sealed_again(self, tenant_id: str, place: str, sealed: Sealed) -> Sealed | None:
        try:
            return self._vault.seal(tenant_id, place, self._vault.open(tenant_id, place, sealed))
        except Conflict as error:
            _log.warning("work_orders.secret_not_rotated", secret=place, key_id=sealed.key_id, why=error.message)
            return None

    def _open(self, row: ledger.OrderSecretRow) -> str:
        return self._vault.open(row.tenant_id, order_secret_place(row.id), Sealed(row.key_id, row.ciphertext))


def _view(row: ledger.OrderSecretRow) -> OrderSecretView:
    return OrderSecretView(id=row.id, created_at=row.created_at, expires_at=row.expires_at)
