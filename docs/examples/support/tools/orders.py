"""What the agent knows of orders, and the one thing that it may do."""

from __future__ import annotations

from nova_workers.sdk import ToolContext, ToolFailure, tool

# In place of the shop's own service.
ORDERS = {"O-1": {"article": "lamp", "cents": 4_900, "status": "delivered"}}


@tool(read_only=True)
def look_up_order(order: str) -> dict[str, str | int]:
    """Look an order up: its article, its price in cents, and where it is.

    Args:
        order: Its number, such as "O-1".
    """
    if order not in ORDERS:
        raise ToolFailure(f"There is no order {order!r}. Ask the customer for its number.")
    return ORDERS[order]


@tool(needs_approval=True, idempotent=True)
def refund(order: str, context: ToolContext) -> str:
    """Pay the price of an order back. A person approves each call."""
    cents = int(look_up_order(order)["cents"])
    context.log.info("refunding %s", order)
    # A payment service that knows idempotency keys pays once, also if a worker dies here and the call is made again.
    return f"{cents} cents of {order} were paid back, as {context.idempotency_key}."
