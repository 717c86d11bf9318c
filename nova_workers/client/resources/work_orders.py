"""The client's calls of work orders, of their policies, and of the secrets of their keys."""

from pydantic import ValidationError

from nova_workers.base.vocabulary import OrderState
from nova_workers.client.problems import unknown_answer
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
from nova_workers.contracts.http.work_orders import OrderReview, WorkOrderTrailView, WorkOrderView
from nova_workers.contracts.orders import AiWorkOrderV1, AiWorkResultV1

__all__ = ["WorkOrderPolicies", "WorkOrderSecrets", "WorkOrders"]

_ORDERS = "/v1/work-orders"

_POLICIES = "/v1/work-order-policies"
_SECRETS = "/v1/work-order-secrets"


_REFUSALS = frozenset({400, 415, 422})
"""Statuses beside which an invalid order gets a result."""
_LONGEST_S = 600.0
"""Of an order without a time of its own; the API answers earlier."""
_GRACE_S = 15.0


class WorkOrders:
    """``/v1/work-orders``. `nova_workers.contracts.orders.build_order` makes an order with its key."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def submit(self, order: AiWorkOrderV1, *, respond_async: bool = False) -> AiWorkResultV1:
        """Submit an order and return its result, also of an invalid one. Equal orders are executed once.

        Args:
            order: With its key.
            respond_async: Return at once, with `in_progress`; otherwise wait for the end, within the order's time.
        """
        # Submitting an order again is safe by its own key; the header lets a dropped connection be repeated.
        headers = {"Idempotency-Key": order.idempotency.key_hash}
        if respond_async:
            headers["Prefer"] = "respond-async"
        time_ms = order.constraints.timeout_ms
        response = await self._transport.send(
            "POST",
            _ORDERS,
            body=order,
            headers=headers,
            timeout_s=_GRACE_S + (_LONGEST_S if time_ms is None else time_ms / 1000),
            accept=_REFUSALS,
        )
        try:
            return AiWorkResultV1.model_validate_json(response.content)
        except ValidationError as error:
            raise unknown_answer(response, error) from error

    async def get(self, trace_id: str, *, internal: bool = False) -> AiWorkResultV1:
        """Return the result of an order, or its present state; with `internal` the costs, too."""
        path = f"{_ORDERS}/{trace_id}/internal" if internal else f"{_ORDERS}/{trace_id}"
        return await self._transport.fetch(AiWorkResultV1, "GET", path)

    async def wait(self, trace_id: str, *, timeout_s: float = 660.0) -> AiWorkResultV1:
        """Return the result of an order once it has ended or needs a person; its state at the server's wait limit."""
        return await self._transport.fetch(AiWorkResultV1, "GET", f"{_ORDERS}/{trace_id}/wait", timeout_s=timeout_s)

    async def cancel(self, trace_id: str) -> AiWorkResultV1:
        """Cancel an order that runs or is in review, and return its result."""
        return await self._transport.fetch(AiWorkResultV1, "POST", f"{_ORDERS}/{trace_id}/cancel")

    async def list(
        self,
        *,
        state: OrderState | None = None,
        policy_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[WorkOrderView]:
        """Return a page of orders without their content, newest first."""
        params = {"state": state, "policy_id": policy_id, "limit": limit, "cursor": cursor}
        return await self._transport.fetch(Page[WorkOrderView], "GET", _ORDERS, params=params)

    async def review(self, trace_id: str, review: OrderReview) -> AiWorkResultV1:
        """Decide on an order in review, and return its result; the first decision counts."""
        return await self._transport.fetch(AiWorkResultV1, "POST", f"{_ORDERS}/{trace_id}/review", body=review)

    async def trail(self, trace_id: str, *, internal: bool = False) -> WorkOrderTrailView:
        """Return what happened to an order, oldest first."""
        path = f"{_ORDERS}/{trace_id}/{'internal-trail' if internal else 'trail'}"
        return await self._transport.fetch(WorkOrderTrailView, "GET", path)


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

    async def delete(self, policy_id: str) -> None:
        """Delete the tenant's policy with its versions. A built-in one with its id applies again."""
        await self._transport.send("DELETE", f"{_POLICIES}/{policy_id}")

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
