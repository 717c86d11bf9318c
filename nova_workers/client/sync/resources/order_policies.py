# Generated from nova_workers/client/resources/order_policies.py by `make format`: change that file instead.
"""``/v1/work-order-policies``."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.order_policies import PolicyInfo, PolicyPut, PolicyView


class WorkOrderPolicies:
    """``/v1/work-order-policies``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Page[PolicyInfo]:
        """Return the policies that apply, by id, in one page."""
        return self._transport.fetch(Page[PolicyInfo], "GET", "/v1/work-order-policies")

    def get(self, policy_id: str, *, version: str | None = None) -> PolicyView:
        """Return the policy that applies, or an earlier version of it."""
        return self._transport.fetch(
            PolicyView, "GET", f"/v1/work-order-policies/{policy_id}", params={"version": version}
        )

    def put(self, policy_id: str, policy: PolicyPut) -> PolicyView:
        """Store a policy as its newest version; `InvalidInput` names every error."""
        return self._transport.fetch(PolicyView, "PUT", f"/v1/work-order-policies/{policy_id}", body=policy)

    def delete(self, policy_id: str) -> None:
        """Delete the tenant's policy with its versions. A built-in one with its id applies again."""
        self._transport.send("DELETE", f"/v1/work-order-policies/{policy_id}")

    def versions(self, policy_id: str, *, limit: int | None = None, cursor: str | None = None) -> Page[PolicyInfo]:
        """Return a page of the tenant's versions of a policy, newest first."""
        return self._transport.fetch(
            Page[PolicyInfo],
            "GET",
            f"/v1/work-order-policies/{policy_id}/versions",
            params={"limit": limit, "cursor": cursor},
        )
