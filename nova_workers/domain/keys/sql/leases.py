"""Leases of a tenant's clients: one holder at a time, and a state that only the holder writes."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from nova_workers.base.errors import Conflict, LimitExceeded
from nova_workers.contracts.http.leases import LeaseRequest, LeaseView
from nova_workers.domain.keys.sql.keys import hash_secret
from nova_workers.domain.upkeep.sql.restored import HOLDS_DELIVERIES
from nova_workers.ledger.database import Connection

MAX_LEASES = 100
"""Of a tenant, since they and their states are kept until the tenant ends."""

_TOKEN_BYTES = 32
_COLUMNS = "l.name, l.holder, l.fence, l.state, l.expires_at, l.retry_requested_at"
_PAUSE = """
error = :error, next_try_at = now() + :next_try::interval,
failing_since = CASE WHEN :error::text IS NOT NULL THEN COALESCE(l.failing_since, now()) END
"""
"""The holder reports it with each request. The time is that of its first report."""

# Guarded by the expiry: a lease that is held is not acquired, nor is any of a restored fleet, whose channels would
# answer people beside those of the fleet that was backed up. The new token makes the former holder's invalid.
# Requests at the same moment may exceed the maximum: it bounds what is stored, and nothing depends on it.
_ACQUIRE = f"""
INSERT INTO leases AS l (tenant_id, name, holder, fence, token_hash, expires_at, state,
                         error, next_try_at, failing_since)
SELECT :tenant_id, :name, :holder, 1, :token_hash, now() + :ttl::interval, '{{}}',
       :error, now() + :next_try::interval, CASE WHEN :error::text IS NOT NULL THEN now() END
 WHERE (SELECT count(*) FROM leases WHERE tenant_id = :tenant_id AND name <> :name) < :most AND NOT {HOLDS_DELIVERIES}
ON CONFLICT (tenant_id, name) DO UPDATE
   SET holder = excluded.holder, fence = l.fence + 1, token_hash = excluded.token_hash,
       expires_at = excluded.expires_at, {_PAUSE}
 WHERE l.expires_at <= now()
RETURNING {_COLUMNS}
"""

# Guarded by the token, which only the holder has. A lease that expired is renewed too, unless another process has
# acquired it. A release replaces the token, so that a renewal on its way acquires nothing, and may be repeated.
_RENEW = f"""
UPDATE leases l
   SET expires_at = now() + :ttl::interval, state = COALESCE(:state::jsonb, l.state), token_hash = :then,
       {_PAUSE}
 WHERE l.tenant_id = :tenant_id AND l.name = :name AND l.token_hash = ANY(:proofs::bytea[])
RETURNING {_COLUMNS}
"""

_IS_HELD_BACK = f"SELECT {HOLDS_DELIVERIES}"
_HOLDER = "SELECT holder, expires_at FROM leases WHERE tenant_id = :tenant_id AND name = :name"


async def acquire_lease(connection: Connection, tenant_id: str, name: str, request: LeaseRequest) -> LeaseView:
    """Acquire a lease that no process holds; its state is that of the last holder.

    Raises:
        Conflict: Another process holds it; the message says which and until when. Or the fleet was restored and waits.
        LimitExceeded: The tenant has its maximum of leases, and this would be another one.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    row = await connection.fetchrow(
        _ACQUIRE,
        tenant_id=tenant_id,
        name=name,
        holder=request.holder,
        token_hash=hash_secret(token),
        ttl=timedelta(seconds=request.ttl_s),
        most=MAX_LEASES,
        **_pause(request),
    )
    if row is None:
        if await connection.fetchval(_IS_HELD_BACK):
            raise Conflict(
                "The fleet was restored from a backup, and its channels wait until an operator ends its pause: "
                "nova fleet resume --scope fleet",
                name=name,
            )
        held = await connection.fetchrow(_HOLDER, tenant_id=tenant_id, name=name)
        if held is None:
            raise LimitExceeded(
                f"The tenant has {MAX_LEASES} leases, which is the most, and {name!r} is not one of them. Use the name "
                "of one that exists: names are of channels and jobs, and not of single processes.",
                limit=MAX_LEASES,
            )
        by = f"by {held['holder']!r} until {held['expires_at'].isoformat()}"
        raise Conflict(f"The lease {name!r} is held {by}. Try again later.", name=name)
    return LeaseView(**row, token=token)


async def renew_lease(
    connection: Connection, tenant_id: str, name: str, request: LeaseRequest, *, token: str
) -> LeaseView:
    """Renew or release a lease that was acquired with this token, and write its state if the request has one.

    Raises:
        Conflict: Another process has acquired it since, it was released, or it was never acquired.
    """
    held = hash_secret(token)
    released = hash_secret(f"released {token}")
    is_release = request.ttl_s == 0
    row = await connection.fetchrow(
        _RENEW,
        tenant_id=tenant_id,
        name=name,
        proofs=[held, released] if is_release else [held],
        then=released if is_release else held,
        ttl=timedelta(seconds=request.ttl_s),
        state=request.state,
        **_pause(request),
    )
    if row is None:
        raise Conflict(f"The lease {name!r} is not held under this token. Acquire it again.", name=name)
    return LeaseView(**row)


def _pause(request: LeaseRequest) -> dict[str, Any]:
    pause = request.pause
    if pause is None:
        return {"error": None, "next_try": None}
    return {"error": pause.error, "next_try": timedelta(seconds=pause.next_try_s)}
