"""Encrypted secrets of order keys, and the encrypted keys of open orders. Only `secrets.rules.vault` opens them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from nova_workers.base.errors import existing
from nova_workers.ledger.database import Connection

_COLUMNS = (
    "id, tenant_id, ciphertext, key_id, created_at, expires_at, (expires_at IS NULL OR expires_at > now()) AS usable"
)

# One statement: there is no moment without a secret, and none in which a replaced one is valid for ever. The oldest one
# stays when it has expired: results are kept under keys of it.
_ADD = f"""
WITH replaced AS (
    UPDATE work_order_secrets SET expires_at = now() + :grace
     WHERE tenant_id = :tenant_id AND (expires_at IS NULL OR expires_at > now() + :grace)
), expired AS (
    DELETE FROM work_order_secrets
     WHERE tenant_id = :tenant_id AND expires_at <= now()
       AND id > (SELECT min(id) FROM work_order_secrets WHERE tenant_id = :tenant_id)
)
INSERT INTO work_order_secrets (id, tenant_id, ciphertext, key_id)
VALUES (:id, :tenant_id, :ciphertext, :key_id)
RETURNING {_COLUMNS}
"""

_USABLE = f"""
SELECT {_COLUMNS} FROM work_order_secrets
 WHERE tenant_id = :tenant_id AND (expires_at IS NULL OR expires_at > now())
 ORDER BY id DESC
"""

_ALL = f"""
SELECT {_COLUMNS} FROM work_order_secrets
 WHERE tenant_id = :tenant_id
   AND (expires_at IS NULL OR expires_at > now()
        OR id = (SELECT min(id) FROM work_order_secrets WHERE tenant_id = :tenant_id))
 ORDER BY id DESC
"""

_DELETE = "DELETE FROM work_order_secrets WHERE tenant_id = :tenant_id AND id = :id RETURNING id"

# Concurrent rotations of the master key skip each other's locked rows.
_LOCK_NOT_UNDER = f"""
SELECT {_COLUMNS} FROM work_order_secrets
 WHERE key_id <> :key_id AND id > :after
 ORDER BY id
 LIMIT :limit
   FOR UPDATE SKIP LOCKED
"""

_RESEAL = """
UPDATE work_order_secrets SET ciphertext = :ciphertext, key_id = :key_id
 WHERE tenant_id = :tenant_id AND id = :id AND key_id = :old_key_id
"""

# Skips orders in transition as well: the next call finds those that are still open.
_LOCK_DATA_KEYS_NOT_UNDER = """
SELECT id, tenant_id, data_key, data_key_id FROM work_orders
 WHERE state <> 'ended' AND data_key_id <> :key_id AND id > :after
 ORDER BY id
 LIMIT :limit
   FOR UPDATE SKIP LOCKED
"""

_RESEAL_DATA_KEY = """
UPDATE work_orders SET data_key = :data_key, data_key_id = :data_key_id
 WHERE id = :id AND state <> 'ended' AND data_key_id = :old_key_id
"""

_COUNT_NOT_UNDER = """
SELECT (SELECT count(*) FROM work_order_secrets WHERE key_id <> :key_id)
     + (SELECT count(*) FROM work_orders WHERE state <> 'ended' AND data_key_id <> :key_id)
"""

_TENANTS_WITHOUT = """
SELECT t.id FROM tenants t
 WHERE t.ending_at IS NULL
   AND NOT EXISTS (SELECT FROM work_order_secrets s
                    WHERE s.tenant_id = t.id AND (s.expires_at IS NULL OR s.expires_at > now()))
 ORDER BY t.id
 LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class OrderSecretRow:
    """A stored secret."""

    id: str
    tenant_id: str
    ciphertext: bytes
    key_id: str
    created_at: datetime
    expires_at: datetime | None
    usable: bool = True
    """Whether it had not expired when the row was read."""


@dataclass(frozen=True, slots=True)
class DataKeyRow:
    """The encrypted key of an open order."""

    id: str
    tenant_id: str
    data_key: bytes
    data_key_id: str


async def add_secret(
    connection: Connection, tenant_id: str, secret_id: str, *, ciphertext: bytes, key_id: str, grace: timedelta
) -> OrderSecretRow:
    """Insert a tenant's newest secret. Those before it expire after `grace`, or when they would have."""
    row = await connection.fetchrow(
        _ADD, tenant_id=tenant_id, id=secret_id, ciphertext=ciphertext, key_id=key_id, grace=grace
    )
    assert row is not None  # noqa: S101 - the statement returns its row or raises
    return OrderSecretRow(**row)


async def list_usable_secrets(connection: Connection, tenant_id: str) -> list[OrderSecretRow]:
    """Return a tenant's secrets that have not expired, newest first."""
    return [OrderSecretRow(**row) for row in await connection.fetch(_USABLE, tenant_id=tenant_id)]


async def list_secrets(connection: Connection, tenant_id: str) -> list[OrderSecretRow]:
    """Return a tenant's secrets that have not expired, and the oldest one in any case; newest first."""
    return [OrderSecretRow(**row) for row in await connection.fetch(_ALL, tenant_id=tenant_id)]


async def delete_secret(connection: Connection, tenant_id: str, secret_id: str) -> None:
    """Delete a secret.

    Raises:
        NotFound: The tenant has no such secret.
    """
    existing(await connection.fetchval(_DELETE, tenant_id=tenant_id, id=secret_id), "order_secret", secret_id)


async def lock_secrets_under_other_keys(
    connection: Connection, key_id: str, *, after: str, limit: int
) -> list[OrderSecretRow]:
    """Return secrets of all tenants that are under other master keys, locked until the transaction ends."""
    rows = await connection.fetch(_LOCK_NOT_UNDER, key_id=key_id, after=after, limit=limit)
    return [OrderSecretRow(**row) for row in rows]


async def reseal_secret(connection: Connection, row: OrderSecretRow, *, ciphertext: bytes, key_id: str) -> None:
    """Store a secret, encrypted with another master key."""
    await connection.execute(
        _RESEAL, tenant_id=row.tenant_id, id=row.id, old_key_id=row.key_id, ciphertext=ciphertext, key_id=key_id
    )


async def lock_data_keys_under_other_keys(
    connection: Connection, key_id: str, *, after: str, limit: int
) -> list[DataKeyRow]:
    """Return keys of open orders of all tenants that are under other master keys, locked likewise."""
    rows = await connection.fetch(_LOCK_DATA_KEYS_NOT_UNDER, key_id=key_id, after=after, limit=limit)
    return [DataKeyRow(**row) for row in rows]


async def reseal_data_key(connection: Connection, row: DataKeyRow, *, data_key: bytes, data_key_id: str) -> None:
    """Store the key of an open order, encrypted with another master key."""
    await connection.execute(
        _RESEAL_DATA_KEY, id=row.id, old_key_id=row.data_key_id, data_key=data_key, data_key_id=data_key_id
    )


async def count_under_other_keys(connection: Connection, key_id: str) -> int:
    """Return how many secrets, and keys of open orders, of all tenants are under other master keys."""
    return await connection.fetchval(_COUNT_NOT_UNDER, key_id=key_id)


async def tenants_without_secret(connection: Connection, *, limit: int) -> list[str]:
    """Return tenants that have no usable secret."""
    return [row["id"] for row in await connection.fetch(_TENANTS_WITHOUT, limit=limit)]
