# Generated from nova_workers/client/resources/webhooks.py by `make format`: change that file instead.
"""``/v1/webhooks`` of the client."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.deliveries import DeliveryView
from nova_workers.contracts.http.webhooks import WebhookCreate, WebhookPatch, WebhookRotate, WebhookSecret, WebhookView


class Webhooks:
    """``/v1/webhooks``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[WebhookView]:
        """Return a page of webhooks, newest first."""
        return self._transport.fetch(
            Page[WebhookView], "GET", "/v1/webhooks", params={"limit": limit, "cursor": cursor}
        )

    def get(self, webhook_id: str) -> WebhookView:
        """Return a webhook."""
        return self._transport.fetch(WebhookView, "GET", f"/v1/webhooks/{webhook_id}")

    def create(self, webhook: WebhookCreate) -> WebhookSecret:
        """Create a webhook. Its secret is in this answer only."""
        return self._transport.fetch(WebhookSecret, "POST", "/v1/webhooks", body=webhook)

    def patch(self, webhook_id: str, change: WebhookPatch) -> WebhookView:
        """Change the fields that `change` sets."""
        return self._transport.fetch(WebhookView, "PATCH", f"/v1/webhooks/{webhook_id}", body=change)

    def delete(self, webhook_id: str) -> None:
        """Delete a webhook."""
        self._transport.send("DELETE", f"/v1/webhooks/{webhook_id}")

    def rotate(self, webhook_id: str, rotate: WebhookRotate) -> WebhookSecret:
        """Replace the secret. The new one is in this answer only."""
        return self._transport.fetch(WebhookSecret, "POST", f"/v1/webhooks/{webhook_id}/rotate", body=rotate)

    def test(self, webhook_id: str) -> DeliveryView:
        """Queue a test delivery without content, and return it."""
        return self._transport.fetch(DeliveryView, "POST", f"/v1/webhooks/{webhook_id}/test")
