"""The client's calls of work orders: their policies, and the secrets of their keys."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.order_policies import (
    OrderSecretCreate,
    OrderSecretCreated,
    OrderSecretView,
    PolicyInfo,
    PolicyPut,
    PolicyView,
)

__all__ = ["WorkOrderPolicies", "WorkOrderSecrets"]

_POLICIES = "/v1/work-order-policies"
_SECRETS = "/v1/work-order-secrets"


class WorkOrderPolicies:
    """``/v1/work-order-policies``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self) -> Page[PolicyInfo]:
        """Return the policies that apply, by id, in one page."""
        return await self._transport.fetch(Page[PolicyInfo], "GET", _POLICIES)

    async def get(self, policy_id: str, *, version: str | None = None) -> PolicyView:
        """Return the policy that applies, or an earlier version of it."""
        return await self._transport.fetch(PolicyView, "GET", f"{_POLICIES}/{policy_id}", params={"version": version})

    async def put(self, policy_id: str, policy: PolicyPut) -> PolicyView:
        """Store a policy as its newest version; `InvalidInput` names every error."""
        return await self._transport.fetch(PolicyView, "PUT", f"{_POLICIES}/{policy_id}", body=policy)

    async def versions(
        self, policy_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[PolicyInfo]:
        """Return a page of the tenant's versions of a policy, newest first."""
        return await self._transport.fetch(
            Page[PolicyInfo], "GET", f"{_POLICIES}/{policy_id}/versions", params={"limit": limit, "cursor": cursor}
        )


class WorkOrderSecrets:
    """``/v1/work-order-secrets``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self) -> Page[OrderSecretView]:
        """Return the usable secrets, newest first, in one page, without their values."""
        return await self._transport.fetch(Page[OrderSecretView], "GET", _SECRETS)

    async def create(self, secret: OrderSecretCreate | None = None) -> OrderSecretCreated:
        """Make the newest secret. Its value is in this answer only."""
        return await self._transport.fetch(OrderSecretCreated, "POST", _SECRETS, body=secret or OrderSecretCreate())

    async def delete(self, secret_id: str) -> None:
        """Delete a secret: orders with its keys are refused at once."""
        await self._transport.send("DELETE", f"{_SECRETS}/{secret_id}")
