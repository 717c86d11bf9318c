# Generated from nova_workers/client/resources/work_orders.py by `make format`: change that file instead.
"""``/v1/work-orders``."""

from pydantic import ValidationError

from nova_workers.client.problems import unknown_answer
from nova_workers.client.sync.resources.work_order_calls import WorkOrderCalls
from nova_workers.contracts.http.work_orders import WorkOrderTrailView
from nova_workers.contracts.orders import AiWorkOrderV1, AiWorkResultV1

_ORDERS = "/v1/work-orders"
_REFUSALS = frozenset({400, 415, 422})
"""Statuses beside which an invalid order gets a result."""
_LONGEST_S = 600.0
"""The longest time of an order without one of its own; the API answers earlier."""
_GRACE_S = 15.0


class WorkOrders(WorkOrderCalls):
    """``/v1/work-orders``. `nova_workers.contracts.orders.build_order` makes an order with its key."""

    def submit(self, order: AiWorkOrderV1, *, respond_async: bool = False) -> AiWorkResultV1:
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
        response = self._transport.send(
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

    def get(self, trace_id: str, *, internal: bool = False) -> AiWorkResultV1:
        """Return the result of an order, or its present state; with `internal` the costs, too."""
        path = f"{_ORDERS}/{trace_id}/internal" if internal else f"{_ORDERS}/{trace_id}"
        return self._transport.fetch(AiWorkResultV1, "GET", path)

    def trail(self, trace_id: str, *, internal: bool = False) -> WorkOrderTrailView:
        """Return the trail of an order, oldest first."""
        path = f"{_ORDERS}/{trace_id}/{'internal-trail' if internal else 'trail'}"
        return self._transport.fetch(WorkOrderTrailView, "GET", path)
