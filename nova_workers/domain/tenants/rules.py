"""Changes of tenants, and the scopes that they need."""

from __future__ import annotations

from collections.abc import Collection

from nova_workers.base.errors import Conflict, Forbidden, InvalidInput
from nova_workers.base.ids import new_id
from nova_workers.contracts.http.scopes import Scope, whole_scopes
from nova_workers.contracts.http.tenants import TenantChange, TenantCreate, TenantCreated, TenantPatch, TenantView
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.keys.sql.keys import create_key
from nova_workers.domain.runs.sql import fleet
from nova_workers.domain.tenants.sql import settings as ledger
from nova_workers.domain.tenants.sql.ending import begin_end
from nova_workers.domain.triggers.rules.schedules import time_zone
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.work import Work

_OF_OPERATORS = frozenset({"name", "weight", "max_running"})
"""Fields that only operators change: shares of the fleet affect other tenants, and operators know tenants by name."""
_FIRST_SCOPES = tuple(scope for scope in whole_scopes() if scope != "operator")


async def change_tenant(database: Database, tenant_id: str, patch: TenantPatch, scopes: Collection[str]) -> TenantView:
    """Change the fields that a patch sets.

    Args:
        scopes: The scopes of the caller's key.

    Raises:
        Forbidden: A scope is missing; names the field.
        InvalidInput: There is no such time zone.
        NotFound: There is no such tenant.
    """
    for field in sorted(patch.model_fields_set):
        needed: Scope = "operator" if field in _OF_OPERATORS else "agents"
        if needed not in scopes:
            raise Forbidden(f"{field} is changed with a key that has the scope {needed!r}.", field=field, needed=needed)
    async with database.transaction() as connection:
        return await _change(connection, tenant_id, patch)


async def operate_tenant(work: Work, tenant_id: str, change: TenantChange) -> TenantView:
    """Change the fields that an operator sets, and pause or resume the tenant.

    Raises:
        InvalidInput: The name is empty, or there is no such time zone.
        NotFound: There is no such tenant.
    """
    if "name" in change.model_fields_set and not change.name:
        raise InvalidInput("name: it cannot be empty.", field="name")
    switch = fleet.Switch("tenant", tenant_id)
    async with work.begin() as tx:
        await _change(tx.connection, tenant_id, change)
        if "paused" in change.model_fields_set:
            if change.paused:
                await fleet.pause(tx.connection, switch, None)
            else:
                tx.ring(await fleet.resume(tx.connection, switch))
        return await ledger.get_tenant(tx.connection, tenant_id)


async def _change(connection: Connection, tenant_id: str, patch: TenantPatch) -> TenantView:
    if "timezone" in patch.model_fields_set:
        time_zone(patch.timezone)
    return await ledger.change_tenant(
        connection, tenant_id, patch.model_dump(mode="json", include=patch.model_fields_set)
    )


async def create_tenant(database: Database, given: TenantCreate, *, timezone: str) -> TenantCreated:
    """Create a tenant with the default agents and a first key.

    Args:
        timezone: The default.

    Raises:
        InvalidInput: There is no such time zone.
        Conflict: The id is taken.
    """
    zone = given.timezone or timezone
    time_zone(zone)
    async with database.transaction() as connection:
        tenant = await ledger.create_tenant(connection, given.id or new_id("ten"), given.name, zone, given.ceilings)
        await seed_defaults(connection, tenant.id)
        key = await create_key(connection, tenant.id, name="first key", scopes=_FIRST_SCOPES)
    return TenantCreated(**tenant.model_dump(), key=key)


async def end_tenant(database: Database, tenant_id: str, name: str) -> TenantView:
    """End a tenant: it becomes unusable, and all of its rows will be deleted.

    Ending it again changes nothing.

    Args:
        name: The tenant's name, as a confirmation.

    Raises:
        NotFound: There is no such tenant.
        InvalidInput: It has another name.
        Conflict: No other tenant has a key with the scope ``operator``.
    """
    async with database.transaction() as connection:
        tenant = await ledger.get_tenant(connection, tenant_id)
        if name != tenant.name:
            raise InvalidInput(
                f"confirm: tenant {tenant_id!r} has the name {tenant.name!r}, not {name!r}. Give its name to confirm "
                "that all that it has is to be deleted.",
                field="confirm",
            )
        if not await begin_end(connection, tenant_id):
            raise Conflict(
                f"Tenant {tenant_id!r} has the only keys with the scope 'operator'. Make one in another tenant first.",
                tenant_id=tenant_id,
            )
        return await ledger.get_tenant(connection, tenant_id)
