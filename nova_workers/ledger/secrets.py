"""The rows of secrets: ciphertexts with their names. What is in them is known to `workspace.vault` alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from nova_workers.errors import NotFound
from nova_workers.ledger.database import Connection, Row

__all__ = [
    "SecretRow",
    "count_not_under",
    "count_secrets",
    "delete_secret",
    "fetch_secrets",
    "list_secrets",
    "lock_not_under",
    "put_secret",
    "replace_ciphertext",
]

_COLUMNS = "tenant_id, name, ciphertext, key_id, description, updated_by, created_at, updated_at"

# A description that is left out stays as it is.
_PUT = f"""
INSERT INTO secrets (tenant_id, name, ciphertext, key_id, description, updated_by)
VALUES ($1, $2, $3, $4, coalesce($5, ''), $6)
ON CONFLICT (tenant_id, name) DO UPDATE
   SET ciphertext = excluded.ciphertext, key_id = excluded.key_id, description = coalesce($5, secrets.description),
       updated_by = excluded.updated_by, updated_at = now()
RETURNING {_COLUMNS}
"""

_COUNT = "SELECT count(*) FROM secrets WHERE tenant_id = $1 AND name <> $2"

_LIST = f"""
SELECT {_COLUMNS} FROM secrets
 WHERE tenant_id = $1 AND ($2::text IS NULL OR name COLLATE "C" > $2)
 ORDER BY name COLLATE "C"
 LIMIT $3
"""

_FETCH = f"SELECT {_COLUMNS} FROM secrets WHERE tenant_id = $1 AND ($2::text[] IS NULL OR name = ANY ($2))"

_DELETE = "DELETE FROM secrets WHERE tenant_id = $1 AND name = $2 RETURNING name"

# Of several rotations at the same time each takes rows that no other has.
_LOCK_NOT_UNDER = f"""
SELECT {_COLUMNS} FROM secrets
 WHERE key_id <> $1 AND (tenant_id, name) > ($2, $3)
 ORDER BY tenant_id, name
 LIMIT $4
   FOR UPDATE SKIP LOCKED
"""

# It is the same secret: who changed it, and when, stays.
_REPLACE_CIPHERTEXT = """
UPDATE secrets SET ciphertext = $4, key_id = $5 WHERE tenant_id = $1 AND name = $2 AND key_id = $3
"""

_COUNT_NOT_UNDER = "SELECT count(*) FROM secrets WHERE key_id <> $1"


@dataclass(frozen=True, slots=True)
class SecretRow:
    """A secret as it is kept."""

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
    """Make or replace a secret."""
    row = await connection.fetchrow(_PUT, tenant_id, name, ciphertext, key_id, description, updated_by)
    assert row is not None  # noqa: S101 - the statement returns its row or raises
    return _secret(row)


async def count_secrets(connection: Connection, tenant_id: str, *, beside: str) -> int:
    """Return how many secrets a tenant has, beside one name."""
    return await connection.fetchval(_COUNT, tenant_id, beside)


async def list_secrets(
    connection: Connection, tenant_id: str, *, after: str | None, limit: int
) -> tuple[SecretRow, ...]:
    """Return a tenant's secrets by name, those after a name."""
    return tuple(_secret(row) for row in await connection.fetch(_LIST, tenant_id, after, limit))


async def fetch_secrets(
    connection: Connection, tenant_id: str, names: Collection[str] | None = None
) -> tuple[SecretRow, ...]:
    """Return those of a tenant's secrets that have one of these names; None is all."""
    wanted = None if names is None else list(names)
    return tuple(_secret(row) for row in await connection.fetch(_FETCH, tenant_id, wanted))


async def delete_secret(connection: Connection, tenant_id: str, name: str) -> None:
    """Delete a secret.

    Raises:
        NotFound: There is none of this name.
    """
    if await connection.fetchval(_DELETE, tenant_id, name) is None:
        raise NotFound(f"There is no secret {name!r}.")


async def lock_not_under(
    connection: Connection, key_id: str, *, after: tuple[str, str], limit: int
) -> tuple[SecretRow, ...]:
    """Return secrets of all tenants that are not under a master key, locked until the transaction ends.

    Args:
        key_id: The master key.
        after: Tenant and name to begin after.
        limit: Most that are returned.
    """
    return tuple(_secret(row) for row in await connection.fetch(_LOCK_NOT_UNDER, key_id, *after, limit))


async def replace_ciphertext(connection: Connection, row: SecretRow, *, ciphertext: bytes, key_id: str) -> None:
    """Keep a secret under another master key."""
    await connection.execute(_REPLACE_CIPHERTEXT, row.tenant_id, row.name, row.key_id, ciphertext, key_id)


async def count_not_under(connection: Connection, key_id: str) -> int:
    """Return how many secrets of all tenants are not under a master key."""
    return await connection.fetchval(_COUNT_NOT_UNDER, key_id)


def _secret(row: Row) -> SecretRow:
    return SecretRow(**row)
