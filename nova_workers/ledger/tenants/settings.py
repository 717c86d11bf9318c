"""Settings of tenants. Keys and the making of tenants are in `tenancy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_workers.contracts.http.tenants import TenantView
from nova_workers.errors import InvalidInput, NotFound
from nova_workers.ledger.database import Connection

__all__ = ["change_tenant", "get_tenant"]

_GET = """
SELECT id, name, timezone, work_from, work_until, work_every_s, weight, max_running, max_cost_usd_per_day::float8,
       created_at
  FROM tenants
 WHERE id = :tenant_id
"""

# Takes all columns from one document, so that those that it leaves out stay.
_CHANGE = """
UPDATE tenants w
   SET timezone = n.timezone, work_from = n.work_from, work_until = n.work_until, work_every_s = n.work_every_s,
       weight = n.weight, max_running = n.max_running, max_cost_usd_per_day = n.max_cost_usd_per_day
  FROM (SELECT (jsonb_populate_record(o, :changes::jsonb)).* FROM tenants o WHERE o.id = :tenant_id FOR UPDATE) n
 WHERE w.id = n.id
"""

_KNOWS_ZONE = "SELECT EXISTS (SELECT FROM pg_timezone_names WHERE name = :zone)"


async def get_tenant(connection: Connection, tenant_id: str) -> TenantView:
    """Return a tenant.

    Raises:
        NotFound: There is none.
    """
    row = await connection.fetchrow(_GET, tenant_id=tenant_id)
    if row is None:
        raise NotFound(f"There is no tenant {tenant_id!r}.", kind="tenant")
    return TenantView.model_validate(dict(row))


async def change_tenant(connection: Connection, tenant_id: str, changes: Mapping[str, Any]) -> TenantView:
    """Change settings of a tenant, by the names of their columns, and return it.

    Raises:
        NotFound: There is no such tenant.
        InvalidInput: The database does not know the time zone.
    """
    zone = changes.get("timezone")
    if zone is not None and not await connection.fetchval(_KNOWS_ZONE, zone=zone):
        raise InvalidInput(f"timezone: {zone!r} is no time zone that Postgres knows.", field="timezone")
    await connection.execute(_CHANGE, tenant_id=tenant_id, changes=dict(changes))
    return await get_tenant(connection, tenant_id)
