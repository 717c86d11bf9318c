"""People who signed in with a provider of single sign-on."""

from __future__ import annotations

from collections.abc import Collection

from nova_workers.base.ids import new_id
from nova_workers.ledger.database import Connection

# One row a person and tenant, whatever the provider calls the person later. None where the tenant has ended.
_KEEP = """
INSERT INTO people AS p (id, tenant_id, issuer, subject, email, name, signed_in_at)
SELECT :person_id, t.id, :issuer, :subject, :email, :name, now()
  FROM tenants t WHERE t.id = :tenant_id AND t.ending_at IS NULL
ON CONFLICT (tenant_id, issuer, subject) DO UPDATE
   SET email = excluded.email, name = excluded.name, signed_in_at = excluded.signed_in_at
RETURNING p.id
"""

_TENANTS = "SELECT id, name FROM tenants WHERE id = ANY(:tenant_ids) AND ending_at IS NULL"

# Keys of people serve one session each, so they go with it; a refused one may still be in use for seconds.
_DELETE_ENDED = """
DELETE FROM api_keys
 WHERE tenant_id = :tenant_id AND person_id IS NOT NULL AND expires_at < now() - interval '1 minute'
"""

_DELETE_KEY = "DELETE FROM api_keys WHERE tenant_id = :tenant_id AND id = :key_id AND person_id IS NOT NULL"


async def find_tenants(connection: Connection, tenant_ids: Collection[str]) -> dict[str, str]:
    """Return the names of those of the tenants that exist, by their ids. The statement needs to see all tenants."""
    rows = await connection.fetch(_TENANTS, tenant_ids=list(tenant_ids))
    return {row["id"]: row["name"] for row in rows}


async def keep_person(
    connection: Connection, tenant_id: str, *, issuer: str, subject: str, email: str | None, name: str | None
) -> str | None:
    """Note that a person signs in, and return its id in the tenant; None if there is no such tenant."""
    return await connection.fetchval(
        _KEEP, tenant_id=tenant_id, person_id=new_id("per"), issuer=issuer, subject=subject, email=email, name=name
    )


async def delete_ended_keys(connection: Connection, tenant_id: str) -> None:
    """Delete the keys of people whose sessions cannot go on."""
    await connection.execute(_DELETE_ENDED, tenant_id=tenant_id)


async def delete_key_of_session(connection: Connection, tenant_id: str, key_id: str) -> None:
    """Delete the key of a session that has ended, if it was made for it."""
    await connection.execute(_DELETE_KEY, tenant_id=tenant_id, key_id=key_id)
