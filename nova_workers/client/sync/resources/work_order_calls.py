# Generated from nova_workers/client/resources/work_order_calls.py by `make format`: change that file instead.
"""The calls of ``/v1/work-orders`` that are one request each."""

from nova_workers.base.vocabulary import OrderState
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.work_orders import OrderReview, WorkOrderPartView, WorkOrderView
from nova_workers.contracts.orders.result import AiWorkResultV1


class WorkOrderCalls:
    """``/v1/work-orders``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def wait(self, trace_id: str, *, timeout_s: float = 660.0) -> AiWorkResultV1:
        """Return the result of an order once it has ended or needs a person; its state at the server's wait limit."""
        return self._transport.fetch(AiWorkResultV1, "GET", f"/v1/work-orders/{trace_id}/wait", timeout_s=timeout_s)

    def cancel(self, trace_id: str) -> AiWorkResultV1:
        """Cancel an order that runs or is in review, and return its result."""
        return self._transport.fetch(AiWorkResultV1, "POST", f"/v1/work-orders/{trace_id}/cancel")

    def parts(self, trace_id: str) -> Page[WorkOrderPartView]:
        """Return the model jobs of an order with their runs and costs, oldest first, in one page."""
        return self._transport.fetch(Page[WorkOrderPartView], "GET", f"/v1/work-orders/{trace_id}/parts")

    def list(
        self,
        *,
        state: OrderState | None = None,
        policy_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[WorkOrderView]:
        """Return a page of orders without their content, newest first."""
        return self._transport.fetch(
            Page[WorkOrderView],
            "GET",
            "/v1/work-orders",
            params={"state": state, "policy_id": policy_id, "limit": limit, "cursor": cursor},
        )

    def review(self, trace_id: str, review: OrderReview) -> AiWorkResultV1:
        """Decide on an order in review, and return its result; the first decision counts."""
        return self._transport.fetch(AiWorkResultV1, "POST", f"/v1/work-orders/{trace_id}/review", body=review)
