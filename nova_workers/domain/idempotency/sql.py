"""Idempotency keys of requests: each is bound to what its first request made, in the transaction that made it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from nova_workers.base.errors import IdempotencyMismatch
from nova_workers.contracts.runs import RequestKey
from nova_workers.ledger.database import Connection

T = TypeVar("T")

# Takes over an expired key; returns no row for a valid one. Waits for a concurrent request with the same key.
_TAKE = """
INSERT INTO idempotency_keys AS k (tenant_id, key, run_id, body_hash, expires_at)
VALUES (:tenant_id, :key, :made_id, :body_hash, now() + :ttl)
ON CONFLICT (tenant_id, key) DO UPDATE
   SET run_id = EXCLUDED.run_id, body_hash = EXCLUDED.body_hash, expires_at = EXCLUDED.expires_at
 WHERE k.expires_at <= now()
RETURNING true
"""

_FIND = """
SELECT body_hash, run_id FROM idempotency_keys WHERE tenant_id = :tenant_id AND key = :key AND expires_at > now()
"""

_NAME_MADE = "UPDATE idempotency_keys SET run_id = :made_id WHERE tenant_id = :tenant_id AND key = :key"


async def once(
    connection: Connection,
    tenant_id: str,
    request: RequestKey | None,
    make: Callable[[], Awaitable[T]],
    find: Callable[[str], Awaitable[T]],
    *,
    made_id: str = "",
) -> tuple[T, bool]:
    """Make what a request asks for, unless an earlier request with its key made it.

    Args:
        connection: Inside the transaction in which `make` writes.
        tenant_id: Whose request.
        request: Its key. Without one it is made.
        make: Makes it. If its id was not chosen before, it calls `name_made`.
        find: Returns what an earlier request made, by its id. It may have been deleted since.
        made_id: The id that was chosen for it. Then a request whose commit was not confirmed finds what it made itself.

    Returns:
        It, and whether an earlier request made it.

    Raises:
        IdempotencyMismatch: The key was used for another request.
    """
    while request is not None and not await _take(connection, tenant_id, request, made_id):
        earlier = await find_made(connection, tenant_id, request)
        if earlier is not None:
            return await find(earlier), earlier != made_id
    return await make(), False


async def name_made(connection: Connection, tenant_id: str, request: RequestKey | None, made_id: str) -> None:
    """Bind a request's key to what it made, in its transaction."""
    if request is not None:
        await connection.execute(_NAME_MADE, tenant_id=tenant_id, key=request.key, made_id=made_id)


async def find_made(connection: Connection, tenant_id: str, request: RequestKey) -> str | None:
    """Return the id of what a request with this key made; None if there was none.

    Raises:
        IdempotencyMismatch: The key was used for another request.
    """
    row = await connection.fetchrow(_FIND, tenant_id=tenant_id, key=request.key)
    if row is None:
        return None
    made_id: str = row["run_id"]
    if row["body_hash"] != request.body_hash:
        made = {"run_id" if made_id.startswith("run_") else "made_id": made_id}
        raise IdempotencyMismatch(
            f"Idempotency-Key {request.key!r} was used for another request, which made {made_id!r}. "
            "Send that one again to get it, or use a new key.",
            key=request.key,
            **made,
        )
    return made_id


async def _take(connection: Connection, tenant_id: str, request: RequestKey, made_id: str) -> bool:
    """Bind a key, unless a valid one is bound already."""
    taken = await connection.fetchval(
        _TAKE,
        tenant_id=tenant_id,
        key=request.key,
        made_id=made_id,
        body_hash=request.body_hash,
        ttl=timedelta(seconds=request.ttl_s),
    )
    return taken is not None
