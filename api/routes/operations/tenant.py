"""``/v1/tenant`` and ``/v1/budgets``: a tenant's settings, and its day's budgets."""

from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.contracts.http.overview.budgets import BudgetsView
from nova_workers.contracts.http.tenants import TenantPatch, TenantView
from nova_workers.domain.tenants.rules import change_tenant
from nova_workers.domain.tenants.sql.settings import get_tenant
from nova_workers.domain.usage.sql.budgets import report_budgets
from nova_workers.ledger.visibility import see_all_tenants

from ...auth import AnyCaller, Caller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...state import State

router = APIRouter(prefix="/v1", tags=["tenant"], route_class=StrictRoute)

TenantIdQuery = Annotated[
    str | None,
    Query(
        pattern=r"^[A-Za-z0-9_-]{1,80}$",
        description="Another tenant than the key's, for operators.",
    ),
]


@router.get("/tenant", responses=problems(404, 422), name="get_tenant_settings")
async def get_settings(caller: AnyCaller, state: State, tenant_id: TenantIdQuery = None) -> TenantView:
    """Get a tenant's settings: time zone, hours, share of the fleet, bounds."""
    meant = _meant(caller, tenant_id)
    async with state.services.database.connection() as connection:
        return await get_tenant(connection, meant)


@router.patch("/tenant", responses=problems(404, 409, body=True), name="patch_tenant_settings")
async def patch_settings(
    body: TenantPatch, caller: AnyCaller, state: State, tenant_id: TenantIdQuery = None
) -> TenantView:
    """Change the given settings. A lower cap or budget does not stop running runs."""
    return await change_tenant(state.services.database, _meant(caller, tenant_id), body, caller.scopes)


@router.get("/budgets", responses=problems())
async def get_budgets(caller: RunsReader, state: State) -> BudgetsView:
    """Get the day's budgets of the tenant, its agents and triggers, and the amounts spent."""
    async with state.services.database.connection() as connection:
        return await report_budgets(connection, caller.tenant_id)


def _meant(caller: Caller, tenant_id: str | None) -> str:
    if tenant_id is not None and tenant_id != caller.tenant_id:
        caller.need("operator")
        see_all_tenants()
    return tenant_id or caller.tenant_id
