# Generated from nova_workers/client/resources/tenants.py by `make format`: change that file instead.
"""``/v1/tenant``, ``/v1/tenants`` and ``/v1/budgets``."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.overview.budgets import BudgetsView
from nova_workers.contracts.http.tenants import TenantChange, TenantCreate, TenantCreated, TenantPatch, TenantView


class Tenants:
    """A tenant's settings and budgets."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, *, tenant_id: str | None = None) -> TenantView:
        """Return the key's tenant, or for operators another."""
        return self._transport.fetch(TenantView, "GET", "/v1/tenant", params={"tenant_id": tenant_id})

    def patch(self, change: TenantPatch, *, tenant_id: str | None = None) -> TenantView:
        """Change the settings that `change` sets."""
        return self._transport.fetch(TenantView, "PATCH", "/v1/tenant", body=change, params={"tenant_id": tenant_id})

    def create(self, tenant: TenantCreate) -> TenantCreated:
        """Make a tenant with its first key. For operators."""
        return self._transport.fetch(TenantCreated, "POST", "/v1/tenants", body=tenant)

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[TenantView]:
        """Return a page of all tenants. For operators."""
        return self._transport.fetch(Page[TenantView], "GET", "/v1/tenants", params={"limit": limit, "cursor": cursor})

    def find(self, tenant_id: str) -> TenantView:
        """Return any tenant. For operators."""
        return self._transport.fetch(TenantView, "GET", f"/v1/tenants/{tenant_id}")

    def change(self, tenant_id: str, change: TenantChange) -> TenantView:
        """Change the fields of any tenant that `change` sets. For operators."""
        return self._transport.fetch(TenantView, "PATCH", f"/v1/tenants/{tenant_id}", body=change)

    def end(self, tenant_id: str, *, confirm: str) -> TenantView:
        """End a tenant and delete all of its rows. For operators.

        Args:
            confirm: The tenant's name.
        """
        return self._transport.fetch(TenantView, "DELETE", f"/v1/tenants/{tenant_id}", params={"confirm": confirm})

    def budgets(self) -> BudgetsView:
        """Return the day's budgets, and the amounts spent."""
        return self._transport.fetch(BudgetsView, "GET", "/v1/budgets")
