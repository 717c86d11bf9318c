"""Rows of secrets: names and ciphertexts. Only `secrets.rules.vault` can decrypt them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.errors import existing
from nova_workers.ledger.database import Connection

_COLUMNS = "tenant_id, name, ciphertext, key_id, description, updated_by, created_at, updated_at"

# Without a description the existing one stays.
_PUT = f"""
INSERT INTO secrets (tenant_id, name, ciphertext, key_id, description, updated_by)
VALUES (:tenant_id, :name, :ciphertext, :key_id, coalesce(:description, ''), :updated_by)
ON CONFLICT (tenant_id, name) DO UPDATE
   SET ciphertext = excluded.ciphertext, key_id = excluded.key_id,
       description = coalesce(:description, secrets.description),
       updated_by = excluded.updated_by, updated_at = now()
RETURNING {_COLUMNS}
"""

_COUNT = "SELECT count(*) FROM secrets WHERE tenant_id = :tenant_id AND name <> :except_name"

_LIST = f"""
SELECT {_COLUMNS} FROM secrets
 WHERE tenant_id = :tenant_id AND (:after::text IS NULL OR name COLLATE "C" > :after)
 ORDER BY name COLLATE "C"
 LIMIT :limit
"""

_FETCH = (
    f"SELECT {_COLUMNS} FROM secrets WHERE tenant_id = :tenant_id AND (:names::text[] IS NULL OR name = ANY (:names))"
)

_DELETE = "DELETE FROM secrets WHERE tenant_id = :tenant_id AND name = :name RETURNING name"

# Concurrent rotations skip each other's locked rows.
_LOCK_NOT_UNDER = f"""
SELECT {_COLUMNS} FROM secrets
 WHERE key_id <> :key_id AND (tenant_id, name) > (:after_tenant_id, :after_name)
 ORDER BY tenant_id, name
 LIMIT :limit
   FOR UPDATE SKIP LOCKED
"""

# Re-encrypts the same secret, so author and time of its last change stay. Guarded by the old key: a secret that was
# replaced meanwhile is not overwritten.
_REPLACE_CIPHERTEXT = """
UPDATE secrets SET ciphertext = :ciphertext, key_id = :key_id
 WHERE tenant_id = :tenant_id AND name = :name AND key_id = :old_key_id
"""

_COUNT_NOT_UNDER = "SELECT count(*) FROM secrets WHERE key_id <> :key_id"


@dataclass(frozen=True, slots=True)
class SecretRow:
    """A stored secret."""

    tenant_id: str
    name: str
    ciphertext: bytes
    key_id: str
    description: str
    updated_by: str
    created_at: datetime
    updated_at: datetime


async def put_secret(
    connection: Connection,
    tenant_id: str,
    name: str,
    *,
    ciphertext: bytes,
    key_id: str,
    description: str | None,
    updated_by: str,
) -> SecretRow:
    """Insert or replace a secret."""
    row = await connection.fetchrow(
        _PUT,
        tenant_id=tenant_id,
        name=name,
        ciphertext=ciphertext,
        key_id=key_id,
        description=description,
        updated_by=updated_by,
    )
    assert row is not None  # noqa: S101 - the statement returns its row or raises
    return SecretRow(**row)


async def count_secrets(connection: Connection, tenant_id: str, *, beside: str) -> int:
    """Return how many secrets a tenant has, not counting one name."""
    return await connection.fetchval(_COUNT, tenant_id=tenant_id, except_name=beside)


async def list_secrets(
    connection: Connection, tenant_id: str, *, after: str | None, limit: int
) -> tuple[SecretRow, ...]:
    """Return a tenant's secrets by name, from after a name."""
    return tuple(
        SecretRow(**row) for row in await connection.fetch(_LIST, tenant_id=tenant_id, after=after, limit=limit)
    )


async def fetch_secrets(
    connection: Connection, tenant_id: str, names: Collection[str] | None = None
) -> tuple[SecretRow, ...]:
    """Return a tenant's secrets with one of these names; None for all."""
    wanted = None if names is None else list(names)
    return tuple(SecretRow(**row) for row in await connection.fetch(_FETCH, tenant_id=tenant_id, names=wanted))


async def delete_secret(connection: Connection, tenant_id: str, name: str) -> None:
    """Delete a secret.

    Raises:
        NotFound: There is no secret of this name.
    """
    existing(await connection.fetchval(_DELETE, tenant_id=tenant_id, name=name), "secret", name)


async def lock_under_other_keys(
    connection: Connection, key_id: str, *, after: tuple[str, str], limit: int
) -> tuple[SecretRow, ...]:
    """Return secrets of all tenants that are under other master keys, locked until the transaction ends.

    Args:
        key_id: The master key.
        after: Tenant and name to begin after.
        limit: Most that are returned.
    """
    return tuple(
        SecretRow(**row)
        for row in await connection.fetch(
            _LOCK_NOT_UNDER, key_id=key_id, after_tenant_id=after[0], after_name=after[1], limit=limit
        )
    )


async def replace_ciphertext(connection: Connection, row: SecretRow, *, ciphertext: bytes, key_id: str) -> None:
    """Store a secret, encrypted with another master key."""
    await connection.execute(
        _REPLACE_CIPHERTEXT,
        tenant_id=row.tenant_id,
        name=row.name,
        old_key_id=row.key_id,
        ciphertext=ciphertext,
        key_id=key_id,
    )


async def count_under_other_keys(connection: Connection, key_id: str) -> int:
    """Return how many secrets of all tenants are under other master keys."""
    return await connection.fetchval(_COUNT_NOT_UNDER, key_id=key_id)
