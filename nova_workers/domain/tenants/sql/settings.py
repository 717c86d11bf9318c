"""Tenants and their settings, for operators. Keys are a home of their own; the end of a tenant is in `ending`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_workers.base.errors import Conflict, InvalidInput, existing
from nova_workers.contracts.agents import Ceilings
from nova_workers.contracts.http.tenants import TenantView
from nova_workers.ledger.database import Connection
from nova_workers.ledger.stored import read_stored

_VIEW = """
SELECT id, name, timezone, work_from, work_until, work_every_s, weight, max_running, max_cost_usd_per_day::float8,
       ceilings, created_at,
       CASE WHEN ending_at IS NOT NULL THEN 'ending'
            WHEN EXISTS (SELECT FROM switches s WHERE s.scope = 'tenant' AND s.tenant_id = tenants.id) THEN 'paused'
            ELSE 'active' END AS state
  FROM tenants
"""
_GET = f"{_VIEW} WHERE id = :id"
_LIST = f"{_VIEW} WHERE :after::text IS NULL OR id > :after ORDER BY id LIMIT :limit"

_CREATE = """
INSERT INTO tenants (id, name, timezone, ceilings) VALUES (:id, :name, :timezone, :ceilings::jsonb)
    ON CONFLICT (id) DO NOTHING
RETURNING id
"""

# Overlays the row with a document of changes; columns that it leaves out stay. The row lock serializes two changes, and
# an ended tenant is not changed.
_CHANGE = """
UPDATE tenants w
   SET name = n.name, timezone = n.timezone, work_from = n.work_from, work_until = n.work_until,
       work_every_s = n.work_every_s, weight = n.weight, max_running = n.max_running,
       max_cost_usd_per_day = n.max_cost_usd_per_day, ceilings = n.ceilings
  FROM (SELECT (jsonb_populate_record(o, :changes::jsonb)).* FROM tenants o
         WHERE o.id = :tenant_id AND o.ending_at IS NULL FOR UPDATE) n
 WHERE w.id = n.id
"""

_CEILINGS = "SELECT ceilings FROM tenants WHERE id = :tenant_id"

_KNOWS_ZONE = "SELECT EXISTS (SELECT FROM pg_timezone_names WHERE name = :zone)"


async def get_tenant(connection: Connection, tenant_id: str) -> TenantView:
    """Return a tenant.

    Raises:
        NotFound: There is no such tenant.
    """
    row = existing(await connection.fetchrow(_GET, id=tenant_id), "tenant", tenant_id)
    return TenantView(**row)


async def list_tenants(connection: Connection, *, after: str | None, limit: int) -> list[TenantView]:
    """Return tenants by id, from after `after`."""
    return [TenantView(**row) for row in await connection.fetch(_LIST, after=after, limit=limit)]


async def get_ceilings(connection: Connection, tenant_id: str) -> Ceilings | None:
    """Return the most that a tenant's agents may be given; None permits everything."""
    ceilings = await connection.fetchval(_CEILINGS, tenant_id=tenant_id)
    return None if ceilings is None else read_stored(Ceilings.model_validate, ceilings)


async def create_tenant(
    connection: Connection, tenant_id: str, name: str, timezone: str, ceilings: Ceilings | None
) -> TenantView:
    """Make a tenant, without agents and keys.

    Raises:
        Conflict: The id is taken.
        InvalidInput: The database does not know the time zone.
    """
    await _check_zone(connection, timezone)
    if not await ensure_tenant(connection, tenant_id, name, timezone, ceilings):
        raise Conflict(f"There is a tenant {tenant_id!r} already. Choose another id.", tenant_id=tenant_id)
    return await get_tenant(connection, tenant_id)


async def ensure_tenant(
    connection: Connection, tenant_id: str, name: str, timezone: str = "UTC", ceilings: Ceilings | None = None
) -> bool:
    """Make a tenant unless it exists, and return whether it was made. One that exists stays as it is."""
    stored = None if ceilings is None else ceilings.model_dump(mode="json")
    return await connection.fetchval(_CREATE, id=tenant_id, name=name, timezone=timezone, ceilings=stored) is not None


async def change_tenant(connection: Connection, tenant_id: str, changes: Mapping[str, Any]) -> TenantView:
    """Change settings of a tenant, by the names of their columns, and return it.

    Raises:
        NotFound: There is no such tenant.
        InvalidInput: The database does not know the time zone.
        Conflict: The tenant was ended.
    """
    if "timezone" in changes:
        await _check_zone(connection, changes["timezone"])
    await connection.execute(_CHANGE, tenant_id=tenant_id, changes=dict(changes))
    tenant = await get_tenant(connection, tenant_id)
    if tenant.state == "ending":
        raise Conflict(f"Tenant {tenant_id!r} was ended; its rows are being deleted.", tenant_id=tenant_id)
    return tenant


async def _check_zone(connection: Connection, zone: str) -> None:
    if not await connection.fetchval(_KNOWS_ZONE, zone=zone):
        raise InvalidInput(f"timezone: {zone!r} is no time zone that Postgres knows.", field="timezone")
