"""What of a tenant may be changed, and by whom."""

from __future__ import annotations

from collections.abc import Collection

from nova_workers.contracts.http.keys import Scope
from nova_workers.contracts.http.tenants import TenantPatch, TenantView
from nova_workers.errors import Forbidden
from nova_workers.ledger.database import Connection
from nova_workers.ledger.tenants import settings as ledger
from nova_workers.triggers.schedules import time_zone

__all__ = ["change_tenant"]

_OF_OPERATORS = frozenset({"weight", "max_running"})
"""What one tenant has of the fleet is taken from the others."""


async def change_tenant(
    connection: Connection, tenant_id: str, patch: TenantPatch, scopes: Collection[str]
) -> TenantView:
    """Change what a patch names.

    Args:
        scopes: Of whoever asks.

    Raises:
        Forbidden: A scope is missing; says for which field.
        InvalidInput: There is no such time zone.
        NotFound: There is no such tenant.
    """
    for field in sorted(patch.model_fields_set):
        needed: Scope = "operator" if field in _OF_OPERATORS else "agents"
        if needed not in scopes:
            raise Forbidden(f"{field} is changed with a key that has the scope {needed!r}.", field=field, needed=needed)
    if "timezone" in patch.model_fields_set:
        time_zone(patch.timezone)
    return await ledger.change_tenant(connection, tenant_id, patch.model_dump(include=patch.model_fields_set))
