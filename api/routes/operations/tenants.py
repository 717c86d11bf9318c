"""``/v1/tenants``: the tenants of the fleet, for operators."""

from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.tenants import MAX_TENANT_NAME, TenantChange, TenantCreate, TenantCreated, TenantView
from nova_workers.domain.tenants import rules as workspace
from nova_workers.domain.tenants.sql import settings as ledger

from ...auth import OperatorCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import TenantIdPath
from ...state import State

router = APIRouter(prefix="/v1/tenants", tags=["tenants"], route_class=StrictRoute)

Confirm = Annotated[
    str, Query(min_length=1, max_length=MAX_TENANT_NAME, description="The tenant's name, to confirm what is deleted.")
]


@router.post("", status_code=201, responses=problems(409, body=True))
async def create_tenant(body: TenantCreate, caller: OperatorCaller, state: State) -> TenantCreated:
    """Create a tenant with the default agents and a first key, whose secret is in this answer only."""
    services = state.services
    return await workspace.create_tenant(services.database, body, timezone=services.settings.timezone)


@router.get("", responses=problems(400, 422))
async def list_tenants(caller: OperatorCaller, state: State, paging: PageQuery) -> Page[TenantView]:
    """List all tenants by id."""
    listing = paging.of(caller.tenant_id, "tenants", str)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_tenants(connection, after=listing.key, limit=listing.rows)
    return listing.page(rows, lambda tenant: tenant.id)


@router.get("/{tenant_id}", responses=problems(404))
async def get_tenant(tenant_id: TenantIdPath, caller: OperatorCaller, state: State) -> TenantView:
    """Get a tenant. An ended one exists until all of its rows are deleted."""
    async with state.services.database.connection() as connection:
        return await ledger.get_tenant(connection, tenant_id)


@router.patch("/{tenant_id}", responses=problems(404, 409, body=True))
async def patch_tenant(tenant_id: TenantIdPath, body: TenantChange, caller: OperatorCaller, state: State) -> TenantView:
    """Change the given settings. While `paused` is true, no new runs of the tenant start."""
    return await workspace.operate_tenant(state.services.work, tenant_id, body)


@router.delete("/{tenant_id}", status_code=202, responses=problems(404, 409, 422))
async def end_tenant(tenant_id: TenantIdPath, caller: OperatorCaller, state: State, confirm: Confirm) -> TenantView:
    """End a tenant and delete its rows. It is unusable from now on; its rows are deleted within minutes."""
    tenant = await workspace.end_tenant(state.services.database, tenant_id, confirm)
    state.keys.forget_tenant(tenant_id)
    return tenant
