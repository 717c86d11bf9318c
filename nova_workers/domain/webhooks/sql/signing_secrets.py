"""Encrypted secrets of webhooks. Only `secrets.rules.vault` can decrypt them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from nova_workers.base.errors import existing
from nova_workers.ledger.database import Connection, Row

_SECRETS = """
clock_timestamp() AS at, secret, key_id,
CASE WHEN previous_expires_at > now() THEN previous_secret END AS previous_secret, previous_expires_at
"""

_ENDPOINT = f"""
SELECT tenant_id, id, url, enabled, kinds, {_SECRETS} FROM webhooks WHERE tenant_id = :tenant_id AND id = :webhook_id
"""
_LOCK_ENDPOINT = f"{_ENDPOINT} FOR UPDATE"

_REPLACE = """
UPDATE webhooks
   SET secret = :secret, key_id = :key_id, previous_secret = :previous,
       previous_expires_at = now() + :grace::interval, updated_at = now()
 WHERE tenant_id = :tenant_id AND id = :webhook_id
"""

# Concurrent rotations of the master key skip each other's locked rows.
_LOCK_NOT_UNDER = f"""
SELECT tenant_id, id, url, enabled, kinds, {_SECRETS} FROM webhooks
 WHERE key_id <> :key_id AND id > :after
 ORDER BY id
 LIMIT :limit
   FOR UPDATE SKIP LOCKED
"""

# Re-encrypts the same secrets, so their times of change and expiry stay.
_RESEAL = """
UPDATE webhooks SET secret = :secret, key_id = :key_id, previous_secret = :previous
 WHERE tenant_id = :tenant_id AND id = :webhook_id
"""

_COUNT_NOT_UNDER = "SELECT count(*) FROM webhooks WHERE key_id <> :key_id"


@dataclass(frozen=True, slots=True)
class SecretColumns:
    """The encrypted secrets of a webhook, both under the same master key."""

    secret: bytes
    key_id: str
    previous: bytes | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a webhook, and the secrets that sign its deliveries.

    Attributes:
        kinds: That it subscribes to by name.
        secrets: With the previous secret only while it signs too.
        previous_expires_at: End of that period.
        at: Database time of the read.
    """

    tenant_id: str
    id: str
    url: str
    enabled: bool
    kinds: tuple[str, ...]
    secrets: SecretColumns
    previous_expires_at: datetime | None
    at: datetime


async def fetch_endpoint(connection: Connection, tenant_id: str, webhook_id: str) -> Endpoint | None:
    """Return a webhook's endpoint. None if it was deleted."""
    row = await connection.fetchrow(_ENDPOINT, tenant_id=tenant_id, webhook_id=webhook_id)
    return None if row is None else _endpoint(row)


async def lock_endpoint(connection: Connection, tenant_id: str, webhook_id: str) -> Endpoint:
    """Return a webhook's endpoint, locked until the transaction ends.

    Raises:
        NotFound: There is no such webhook.
    """
    row = await connection.fetchrow(_LOCK_ENDPOINT, tenant_id=tenant_id, webhook_id=webhook_id)
    return _endpoint(existing(row, "webhook", webhook_id))


async def replace_secret(
    connection: Connection, tenant_id: str, webhook_id: str, secrets: SecretColumns, *, grace: timedelta
) -> None:
    """Replace the secret of a locked webhook; the previous one also signs during `grace`."""
    await connection.execute(
        _REPLACE,
        tenant_id=tenant_id,
        webhook_id=webhook_id,
        secret=secrets.secret,
        key_id=secrets.key_id,
        previous=secrets.previous,
        grace=grace,
    )


async def lock_under_other_keys(connection: Connection, key_id: str, *, after: str, limit: int) -> list[Endpoint]:
    """Return webhooks of all tenants whose secrets are under other master keys, locked until the transaction ends."""
    return [_endpoint(row) for row in await connection.fetch(_LOCK_NOT_UNDER, key_id=key_id, after=after, limit=limit)]


async def reseal(connection: Connection, endpoint: Endpoint, secrets: SecretColumns) -> None:
    """Store a webhook's secrets, encrypted with another master key."""
    await connection.execute(
        _RESEAL,
        tenant_id=endpoint.tenant_id,
        webhook_id=endpoint.id,
        secret=secrets.secret,
        key_id=secrets.key_id,
        previous=secrets.previous,
    )


async def count_under_other_keys(connection: Connection, key_id: str) -> int:
    """Return how many webhooks of all tenants are under other master keys."""
    return await connection.fetchval(_COUNT_NOT_UNDER, key_id=key_id)


def _endpoint(row: Row) -> Endpoint:
    secrets = SecretColumns(row["secret"], row["key_id"], row["previous_secret"])
    return Endpoint(
        tenant_id=row["tenant_id"],
        id=row["id"],
        url=row["url"],
        enabled=row["enabled"],
        kinds=tuple(row["kinds"]),
        secrets=secrets,
        previous_expires_at=row["previous_expires_at"],
        at=row["at"],
    )
