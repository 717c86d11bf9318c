# Generated from nova_workers/client/resources/deliveries.py by `make format`: change that file instead.
"""``/v1/deliveries``, ``/v1/delivery-targets`` and ``/v1/files``: what agents deliver to people."""

from nova_workers.base.vocabulary import DeliveryKind, DeliveryStatus
from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.deliveries import DeliveryView, SentFileView, WaitingTarget


class Deliveries:
    """``/v1/deliveries``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        kind: DeliveryKind | None = None,
        status: DeliveryStatus | None = None,
        agent_id: str | None = None,
        webhook_id: str | None = None,
        channel: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DeliveryView]:
        """Return a page of the inbox, newest first; or of the deliveries to a webhook or a channel."""
        return self._transport.fetch(
            Page[DeliveryView],
            "GET",
            "/v1/deliveries",
            params={
                "kind": kind,
                "status": status,
                "agent_id": agent_id,
                "webhook_id": webhook_id,
                "channel": channel,
                "limit": limit,
                "cursor": cursor,
            },
        )

    def get(self, delivery_id: str) -> DeliveryView:
        """Return a delivery."""
        return self._transport.fetch(DeliveryView, "GET", f"/v1/deliveries/{delivery_id}")

    def replay(self, delivery_id: str) -> DeliveryView:
        """Send a delivery that ended again, or at once one that waits for its next attempt, under the same id."""
        return self._transport.fetch(DeliveryView, "POST", f"/v1/deliveries/{delivery_id}/replay")

    def close(self, delivery_id: str) -> DeliveryView:
        """Close a notification, file or note in the inbox."""
        return self._transport.fetch(DeliveryView, "POST", f"/v1/deliveries/{delivery_id}/close")

    def targets(self) -> Page[WaitingTarget]:
        """Return the webhooks and channels that failed and that deliveries wait for."""
        return self._transport.fetch(Page[WaitingTarget], "GET", "/v1/delivery-targets")

    def retry(self, target: str) -> None:
        """Try what waits for a webhook or a channel at once."""
        self._transport.send("POST", f"/v1/delivery-targets/{target}/retry")


class Files:
    """``/v1/files``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        agent_id: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[SentFileView]:
        """Return a page of the files that agents sent, newest first."""
        return self._transport.fetch(
            Page[SentFileView],
            "GET",
            "/v1/files",
            params={"agent_id": agent_id, "thread_id": thread_id, "limit": limit, "cursor": cursor},
        )

    def get(self, file_id: str) -> SentFileView:
        """Return a file without its content."""
        return self._transport.fetch(SentFileView, "GET", f"/v1/files/{file_id}")

    def read(self, file_id: str) -> bytes:
        """Return the bytes of a file."""
        return (self._transport.send("GET", f"/v1/files/{file_id}/content")).content

    def delete(self, file_id: str) -> None:
        """Delete a file for good."""
        self._transport.send("DELETE", f"/v1/files/{file_id}")
