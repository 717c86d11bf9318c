"""API keys of tenants. Of a key's secret only the SHA-256 and the first characters are stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network

from nova_workers.base.errors import Unauthenticated, existing
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import AccessRole
from nova_workers.contracts.http.keys import KeyCreated, KeyIdentity, KeyView
from nova_workers.contracts.http.scopes import with_included
from nova_workers.ledger.database import Connection

DEFAULT_TENANT_ID = "ten_default"
"""The tenant that `nova up` makes. A fixed id, so that two first starts on one database make one tenant."""

_SECRET_PREFIX = "nova_"  # noqa: S105 - what every key begins with; secret scanners can look for it
_SECRET_BYTES = 32
_VISIBLE_CHARS = 12

_COLUMNS = (
    "id, name, prefix, scopes, created_at, expires_at, revoked_at, last_used_at, last_used_address, role, networks, "
    "replaced_by"
)

_CREATE = f"""
INSERT INTO api_keys (id, tenant_id, name, prefix, hash, scopes, expires_at, role, networks, person_id)
VALUES (:key_id, :tenant_id, :name, :prefix, :secret_hash, :scopes, :expires_at, :role, :networks, :person_id)
RETURNING {_COLUMNS}
"""

# One probe of the unique index; the server's clock decides what has expired.
_FIND = """
SELECT id, tenant_id, name, scopes, expires_at, networks, person_id FROM api_keys
 WHERE hash = :secret_hash AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
"""

_IS_VALID = """
SELECT EXISTS (SELECT FROM api_keys
                WHERE tenant_id = :tenant_id AND id = :key_id AND revoked_at IS NULL
                  AND (expires_at IS NULL OR expires_at > now()))
"""

# Without those of people's sessions, which are a list of their own.
_LIST = f"""
SELECT {_COLUMNS} FROM api_keys
 WHERE tenant_id = :tenant_id AND person_id IS NULL AND (:before::text IS NULL OR id < :before)
 ORDER BY id DESC
 LIMIT :limit
"""

_IDENTIFY = """
SELECT k.id AS key_id, k.name AS key_name, k.prefix, k.scopes, k.role, k.expires_at, k.person_id,
       w.id AS tenant_id, w.name AS tenant_name, w.timezone
  FROM api_keys k JOIN tenants w ON w.id = k.tenant_id
 WHERE k.tenant_id = :tenant_id AND k.id = :key_id
"""

# A rotated key is of the same principal. UNION ends at a circle, which no rotation makes.
_OF_PRINCIPAL = """
WITH RECURSIVE line AS (
    SELECT id FROM api_keys WHERE tenant_id = :tenant_id AND id = :key_id
    UNION
    SELECT k.id FROM line l JOIN api_keys k ON k.tenant_id = :tenant_id AND k.replaced_by = l.id
)
SELECT id FROM line ORDER BY id DESC
"""

# Idempotent: the first revocation's time stays.
_REVOKE = f"""
UPDATE api_keys SET revoked_at = COALESCE(revoked_at, now())
 WHERE tenant_id = :tenant_id AND id = :key_id
RETURNING {_COLUMNS}
"""

# Held until the end of the transaction, so that a key gets one successor.
_LOCK = f"""
SELECT {_COLUMNS}, expires_at <= now() AS has_expired FROM api_keys
 WHERE tenant_id = :tenant_id AND id = :key_id AND person_id IS NULL
   FOR UPDATE
"""

# It lives as long as the key that it replaces did from the beginning.
_SUCCEED = f"""
INSERT INTO api_keys (id, tenant_id, name, prefix, hash, scopes, expires_at, role, networks)
SELECT :successor_id, tenant_id, name, :prefix, :secret_hash, scopes, now() + (expires_at - created_at), role, networks
  FROM api_keys WHERE tenant_id = :tenant_id AND id = :key_id
RETURNING {_COLUMNS}
"""

# LEAST ignores a null: a key that never expired ends with the overlap.
_REPLACE = """
UPDATE api_keys SET replaced_by = :successor_id, expires_at = LEAST(expires_at, now() + :overlap::interval)
 WHERE tenant_id = :tenant_id AND id = :key_id AND replaced_by IS NULL
"""

# Guarded by what is known of its use: a key that is used keeps its secret.
_RENEW_SECRET = f"""
UPDATE api_keys SET prefix = :prefix, hash = :secret_hash
 WHERE tenant_id = :tenant_id AND id = :key_id AND last_used_at IS NULL AND revoked_at IS NULL AND replaced_by IS NULL
   AND (expires_at IS NULL OR expires_at > now())
RETURNING {_COLUMNS}
"""

# Rows are locked in one order, so that API processes cannot deadlock; a use that another process saw later stays.
_NOTE_USES = """
WITH used AS (
    SELECT * FROM unnest(:key_ids::text[], :times::timestamptz[], :addresses::text[]) AS u (id, at, address)
), locked AS (
    SELECT k.id FROM api_keys k JOIN used u ON u.id = k.id ORDER BY k.id FOR UPDATE OF k
)
UPDATE api_keys k SET last_used_at = u.at, last_used_address = u.address
  FROM used u JOIN locked USING (id)
 WHERE k.id = u.id AND (k.last_used_at IS NULL OR k.last_used_at < u.at)
"""


@dataclass(frozen=True, slots=True)
class KeyUse:
    """The latest use of a key: when, and the client's address."""

    key_id: str
    at: datetime
    address: str | None


@dataclass(frozen=True, slots=True)
class AuthenticatedKey:
    """A valid key: known, not revoked and not expired when it was read. Its scopes are with those that they include."""

    key_id: str
    tenant_id: str
    name: str
    scopes: frozenset[str]
    expires_at: datetime | None
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Those of the clients that may use it; empty: all."""
    person_id: str | None = None
    """The person whose session it is of."""


@dataclass(frozen=True, slots=True)
class LockedKey:
    """A key that the transaction has locked."""

    view: KeyView
    has_expired: bool


def hash_secret(secret: str) -> bytes:
    """Return the hash that is stored of a secret; 256 random bits need no slow hash."""
    return hashlib.sha256(secret.encode()).digest()


async def ids_of_principal(connection: Connection, tenant_id: str, principal: str) -> list[str]:
    """Return the ids under which a principal made things: a key's with those that it replaced, from the newest on.

    Args:
        principal: A key, or a person who came by single sign-on, who has one id.
    """
    rows = await connection.fetch(_OF_PRINCIPAL, tenant_id=tenant_id, key_id=principal)
    return [row["id"] for row in rows] or [principal]


async def create_key(
    connection: Connection,
    tenant_id: str,
    *,
    name: str,
    scopes: Collection[str],
    expires_at: datetime | None = None,
    role: AccessRole | None = None,
    networks: Sequence[str] = (),
    person_id: str | None = None,
) -> KeyCreated:
    """Make a key. The returned value holds its secret, which cannot be read again.

    Args:
        connection: Where to write.
        tenant_id: Tenant of the key; must exist.
        name: Description by its owner.
        scopes: What it may do; see `nova_workers.contracts.http.scopes.Scope`.
        expires_at: None for a key that is valid until it is revoked.
        role: The role that the scopes are of.
        networks: The networks of the clients that may use it; empty: all.
        person_id: The person whose session it is of.
    """
    secret = _new_secret()
    row = await connection.fetchrow(
        _CREATE,
        key_id=new_id("key"),
        tenant_id=tenant_id,
        name=name,
        prefix=secret[:_VISIBLE_CHARS],
        secret_hash=hash_secret(secret),
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
        role=role,
        networks=list(networks),
        person_id=person_id,
    )
    return KeyCreated(**(row or {}), key=secret)


async def find_key(connection: Connection, secret_hash: bytes) -> AuthenticatedKey | None:
    """Return the valid key with this hash; None if it is unknown, revoked or expired."""
    row = await connection.fetchrow(_FIND, secret_hash=secret_hash)
    if row is None:
        return None
    return AuthenticatedKey(
        row["id"],
        row["tenant_id"],
        row["name"],
        with_included(row["scopes"]),
        row["expires_at"],
        tuple(map(ip_network, row["networks"])),
        row["person_id"],
    )


async def is_valid_key(connection: Connection, tenant_id: str, key_id: str) -> bool:
    """Return whether a key that was valid has neither been revoked nor expired."""
    return await connection.fetchval(_IS_VALID, tenant_id=tenant_id, key_id=key_id)


async def note_uses(connection: Connection, uses: Sequence[KeyUse]) -> None:
    """Write the latest uses of keys, one of each."""
    await connection.execute(
        _NOTE_USES,
        key_ids=[use.key_id for use in uses],
        times=[use.at for use in uses],
        addresses=[use.address for use in uses],
    )


async def identify_key(connection: Connection, tenant_id: str, key_id: str) -> KeyIdentity:
    """Return an authenticated key with its tenant.

    Raises:
        Unauthenticated: The key was deleted with its tenant after it was authenticated.
    """
    row = await connection.fetchrow(_IDENTIFY, tenant_id=tenant_id, key_id=key_id)
    if row is None:
        raise Unauthenticated(f"The API key {key_id!r} was deleted with its tenant.", key_id=key_id)
    return KeyIdentity(**row)


async def list_keys(connection: Connection, tenant_id: str, *, before: str | None, limit: int) -> list[KeyView]:
    """Return the tenant's keys, newest first, from before the id `before`."""
    return [KeyView(**row) for row in await connection.fetch(_LIST, tenant_id=tenant_id, before=before, limit=limit)]


async def revoke_key(connection: Connection, tenant_id: str, key_id: str) -> KeyView:
    """Revoke a key. Revoking it again changes nothing.

    Raises:
        NotFound: There is no such key.
    """
    row = existing(await connection.fetchrow(_REVOKE, tenant_id=tenant_id, key_id=key_id), "key", key_id)
    return KeyView(**row)


async def lock_key(connection: Connection, tenant_id: str, key_id: str) -> LockedKey:
    """Return a key and lock it until the transaction ends.

    Raises:
        NotFound: There is no such key.
    """
    row = existing(await connection.fetchrow(_LOCK, tenant_id=tenant_id, key_id=key_id), "key", key_id)
    return LockedKey(KeyView(**row), bool(row["has_expired"]))


async def succeed_key(connection: Connection, tenant_id: str, key_id: str, *, overlap: timedelta) -> KeyCreated:
    """Make the successor of a key that `lock_key` locked and that has none; the key ends after the overlap."""
    secret = _new_secret()
    successor_id = new_id("key")
    row = await connection.fetchrow(
        _SUCCEED,
        tenant_id=tenant_id,
        key_id=key_id,
        successor_id=successor_id,
        prefix=secret[:_VISIBLE_CHARS],
        secret_hash=hash_secret(secret),
    )
    await connection.execute(_REPLACE, tenant_id=tenant_id, key_id=key_id, successor_id=successor_id, overlap=overlap)
    return KeyCreated(**(row or {}), key=secret)


async def renew_secret(connection: Connection, tenant_id: str, key_id: str) -> KeyCreated | None:
    """Give a valid key that was never used another secret; None if it was used, or is not valid."""
    secret = _new_secret()
    row = await connection.fetchrow(
        _RENEW_SECRET,
        tenant_id=tenant_id,
        key_id=key_id,
        prefix=secret[:_VISIBLE_CHARS],
        secret_hash=hash_secret(secret),
    )
    return None if row is None else KeyCreated(**row, key=secret)


def _new_secret() -> str:
    return _SECRET_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
