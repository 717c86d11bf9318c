# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/work-order-policies``."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.order_policies import PolicyInfo, PolicyPut, PolicyView


class WorkOrderPolicies:
    """``/v1/work-order-policies``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self) -> Page[PolicyInfo]:
        """Return the policies that apply, by id, in one page."""
        return await self._transport.fetch(Page[PolicyInfo], "GET", "/v1/work-order-policies")

    async def get(self, policy_id: str, *, version: str | None = None) -> PolicyView:
        """Return the policy that applies, or an earlier version of it."""
        return await self._transport.fetch(
            PolicyView, "GET", f"/v1/work-order-policies/{policy_id}", params={"version": version}
        )

    async def put(self, policy_id: str, policy: PolicyPut) -> PolicyView:
        """Store a policy as its newest version; `InvalidInput` names every error."""
        return await self._transport.fetch(PolicyView, "PUT", f"/v1/work-order-policies/{policy_id}", body=policy)

    async def delete(self, policy_id: str) -> None:
        """Delete the tenant's policy with its versions. A built-in one with its id applies again."""
        await self._transport.send("DELETE", f"/v1/work-order-policies/{policy_id}")

    async def versions(
        self, policy_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[PolicyInfo]:
        """Return a page of the tenant's versions of a policy, newest first."""
        return await self._transport.fetch(
            Page[PolicyInfo],
            "GET",
            f"/v1/work-order-policies/{policy_id}/versions",
            params={"limit": limit, "cursor": cursor},
        )
