# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/webhooks`` of the client."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.deliveries import DeliveryView
from nova_workers.contracts.http.webhooks import WebhookCreate, WebhookPatch, WebhookRotate, WebhookSecret, WebhookView


class Webhooks:
    """``/v1/webhooks``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[WebhookView]:
        """Return a page of webhooks, newest first."""
        return await self._transport.fetch(
            Page[WebhookView], "GET", "/v1/webhooks", params={"limit": limit, "cursor": cursor}
        )

    async def get(self, webhook_id: str) -> WebhookView:
        """Return a webhook."""
        return await self._transport.fetch(WebhookView, "GET", f"/v1/webhooks/{webhook_id}")

    async def create(self, webhook: WebhookCreate) -> WebhookSecret:
        """Create a webhook. Its secret is in this answer only."""
        return await self._transport.fetch(WebhookSecret, "POST", "/v1/webhooks", body=webhook)

    async def patch(self, webhook_id: str, change: WebhookPatch) -> WebhookView:
        """Change the fields that `change` sets."""
        return await self._transport.fetch(WebhookView, "PATCH", f"/v1/webhooks/{webhook_id}", body=change)

    async def delete(self, webhook_id: str) -> None:
        """Delete a webhook."""
        await self._transport.send("DELETE", f"/v1/webhooks/{webhook_id}")

    async def rotate(self, webhook_id: str, rotate: WebhookRotate) -> WebhookSecret:
        """Replace the secret. The new one is in this answer only."""
        return await self._transport.fetch(WebhookSecret, "POST", f"/v1/webhooks/{webhook_id}/rotate", body=rotate)

    async def test(self, webhook_id: str) -> DeliveryView:
        """Queue a test delivery without content, and return it."""
        return await self._transport.fetch(DeliveryView, "POST", f"/v1/webhooks/{webhook_id}/test")
