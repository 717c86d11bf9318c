"""Sessions of people who signed in with a key, as at a console: each ends by signing out, or when it is idle."""

from __future__ import annotations

from datetime import timedelta

from nova_workers.base.errors import existing
from nova_workers.base.ids import new_id
from nova_workers.contracts.http.keys import SignInView
from nova_workers.ledger.database import Connection

# Those of the tenant that were idle for too long go with it, so that there are no more than are in use.
_BEGIN = """
WITH expired AS (
    DELETE FROM sign_ins WHERE tenant_id = :tenant_id AND seen_at <= now() - make_interval(secs => idle_s)
)
INSERT INTO sign_ins (id, tenant_id, key_id, idle_s) VALUES (:sign_in_id, :tenant_id, :key_id, :idle_s)
"""

_USE = """
SELECT extract(epoch FROM exact_to)::float AS exact_to_s, seen_at < now() - exact_to AS is_old
  FROM sign_ins, LEAST(:exact_to::interval, make_interval(secs => idle_s / 10.0)) AS exact_to
 WHERE tenant_id = :tenant_id AND id = :sign_in_id AND key_id = :key_id
   AND seen_at > now() - make_interval(secs => idle_s)
"""
_SEE = "UPDATE sign_ins SET seen_at = now() WHERE tenant_id = :tenant_id AND id = :sign_in_id AND seen_at < now()"

# Without a key: any of the tenant.
_END = """
DELETE FROM sign_ins
 WHERE tenant_id = :tenant_id AND id = :sign_in_id AND (:key_id::text IS NULL OR key_id = :key_id)
RETURNING key_id
"""

# What has ended by its key or was idle for too long is deleted later, and is no session.
_LIST = """
SELECT s.id, s.key_id, k.name, k.role, k.person_id, s.began_at, s.seen_at, s.idle_s, k.last_used_address AS address
  FROM sign_ins s JOIN api_keys k ON k.tenant_id = s.tenant_id AND k.id = s.key_id
 WHERE s.tenant_id = :tenant_id AND (:before::text IS NULL OR s.id < :before)
   AND s.seen_at > now() - make_interval(secs => s.idle_s)
   AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
 ORDER BY s.id DESC
 LIMIT :limit
"""

_EXACT_TO = timedelta(minutes=1)
"""A use is written once a minute, or in each tenth of a short `idle_s`: a person who works costs no write a request."""


async def begin_sign_in(connection: Connection, tenant_id: str, key_id: str, *, idle_s: int) -> str:
    """Begin a session, and return its id. It ends after `idle_s` without a request."""
    sign_in_id = new_id("sgn")
    await connection.execute(_BEGIN, tenant_id=tenant_id, sign_in_id=sign_in_id, key_id=key_id, idle_s=idle_s)
    return sign_in_id


async def use_sign_in(connection: Connection, tenant_id: str, key_id: str, sign_in_id: str) -> float | None:
    """Note that a session of the key is used; return in how many seconds to note it again, None if it has ended."""
    row = await connection.fetchrow(_USE, tenant_id=tenant_id, sign_in_id=sign_in_id, key_id=key_id, exact_to=_EXACT_TO)
    if row is None:
        return None
    if row["is_old"]:
        await connection.execute(_SEE, tenant_id=tenant_id, sign_in_id=sign_in_id)
    return row["exact_to_s"]


async def end_sign_in(connection: Connection, tenant_id: str, sign_in_id: str, *, key_id: str | None) -> str:
    """End a session, and return its key.

    Args:
        key_id: The key that it must be of; None for any of the tenant.

    Raises:
        NotFound: It has ended, or is of another key.
    """
    return existing(
        await connection.fetchval(_END, tenant_id=tenant_id, sign_in_id=sign_in_id, key_id=key_id),
        "session",
        sign_in_id,
    )


async def list_sign_ins(connection: Connection, tenant_id: str, *, before: str | None, limit: int) -> list[SignInView]:
    """Return the sessions that go on, newest first, from before the id `before`."""
    rows = await connection.fetch(_LIST, tenant_id=tenant_id, before=before, limit=limit)
    return [SignInView(**row) for row in rows]
