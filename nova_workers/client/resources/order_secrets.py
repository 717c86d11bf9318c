# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/work-order-secrets``."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.order_policies import OrderSecretCreate, OrderSecretCreated, OrderSecretView


class WorkOrderSecrets:
    """``/v1/work-order-secrets``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self) -> Page[OrderSecretView]:
        """Return the usable secrets, newest first, in one page, without their values."""
        return await self._transport.fetch(Page[OrderSecretView], "GET", "/v1/work-order-secrets")

    async def create(self, secret: OrderSecretCreate | None = None) -> OrderSecretCreated:
        """Make the newest secret. Its value is in this answer only."""
        return await self._transport.fetch(
            OrderSecretCreated, "POST", "/v1/work-order-secrets", body=secret or OrderSecretCreate()
        )

    async def delete(self, secret_id: str) -> None:
        """Delete a secret: orders with its keys are refused at once."""
        await self._transport.send("DELETE", f"/v1/work-order-secrets/{secret_id}")
