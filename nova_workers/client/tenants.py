"""``/v1/tenant`` and ``/v1/budgets``."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.http.budgets import BudgetsView
from nova_workers.contracts.http.tenants import TenantPatch, TenantView

__all__ = ["Tenants"]


class Tenants:
    """A tenant's settings and budgets."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, *, tenant_id: str | None = None) -> TenantView:
        """Return the key's tenant, or for operators another."""
        return await self._transport.fetch(TenantView, "GET", "/v1/tenant", params={"tenant_id": tenant_id})

    async def patch(self, change: TenantPatch, *, tenant_id: str | None = None) -> TenantView:
        """Change the settings that `change` sets."""
        return await self._transport.fetch(
            TenantView, "PATCH", "/v1/tenant", body=change, params={"tenant_id": tenant_id}
        )

    async def budgets(self) -> BudgetsView:
        """Return the day's budgets, and what was spent of them."""
        return await self._transport.fetch(BudgetsView, "GET", "/v1/budgets")
