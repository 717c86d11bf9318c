"""Idempotency keys of requests: each is bound to what its first request made, in the transaction that made it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from nova_workers.base.errors import IdempotencyMismatch
from nova_workers.ledger.database import Connection

__all__ = ["RequestKey", "find_key", "name_made", "take_idempotency_key", "take_key"]

# Takes over an expired key; returns no row for a valid one. Waits for a concurrent request with the same key.
_TAKE_KEY = """
INSERT INTO idempotency_keys AS k (tenant_id, key, run_id, body_hash, expires_at)
VALUES (:tenant_id, :key, :run_id, :body_hash, now() + :ttl)
ON CONFLICT (tenant_id, key) DO UPDATE
   SET run_id = EXCLUDED.run_id, body_hash = EXCLUDED.body_hash, expires_at = EXCLUDED.expires_at
 WHERE k.expires_at <= now()
RETURNING run_id
"""

_BOUND_KEY = """
SELECT body_hash, run_id FROM idempotency_keys WHERE tenant_id = :tenant_id AND key = :key AND expires_at > now()
"""

_NAME_MADE = "UPDATE idempotency_keys SET run_id = :made_id WHERE tenant_id = :tenant_id AND key = :key"


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The Idempotency-Key of a request, and a hash of what is requested.

    Attributes:
        ttl_s: How long the key is bound.
    """

    key: str
    body_hash: bytes
    ttl_s: float


async def take_key(connection: Connection, tenant_id: str, request: RequestKey | None, made_id: str = "") -> str | None:
    """Bind a request's key, before anything is made; inside the transaction that makes it.

    Args:
        connection: Inside a transaction.
        tenant_id: Whose request.
        request: Its key; without one there is nothing to bind.
        made_id: The id of what it makes. If that is not known yet: see `name_made`.

    Returns:
        The id of what the first request with the key made; None for a first request.

    Raises:
        IdempotencyMismatch: The first request was another.
    """
    if request is None or await take_idempotency_key(
        connection, tenant_id, request.key, body_hash=request.body_hash, run_id=made_id, ttl_s=request.ttl_s
    ):
        return None
    found = await find_key(connection, tenant_id, request.key)
    if found is None or found[0] != request.body_hash:
        raise IdempotencyMismatch(
            f"Idempotency-Key {request.key!r} was used for another request. Send that one again, or use a new key.",
            key=request.key,
        )
    return found[1]


async def name_made(connection: Connection, tenant_id: str, request: RequestKey | None, made_id: str) -> None:
    """Name what a request made, in the transaction that took its key."""
    if request is not None:
        await connection.execute(_NAME_MADE, tenant_id=tenant_id, key=request.key, made_id=made_id)


async def take_idempotency_key(
    connection: Connection, tenant_id: str, key: str, *, body_hash: bytes | None, run_id: str, ttl_s: float
) -> bool:
    """Bind a key to a run, or another thing. False if a valid key is bound to another."""
    taken = await connection.fetchval(
        _TAKE_KEY,
        tenant_id=tenant_id,
        key=key,
        run_id=run_id,
        body_hash=body_hash,
        ttl=timedelta(seconds=ttl_s),
    )
    return taken is not None


async def find_key(connection: Connection, tenant_id: str, key: str) -> tuple[bytes | None, str] | None:
    """Return the body's hash and the id that a valid key is bound to, whether or not there is a run of that id."""
    row = await connection.fetchrow(_BOUND_KEY, tenant_id=tenant_id, key=key)
    return None if row is None else (row["body_hash"], row["run_id"])
