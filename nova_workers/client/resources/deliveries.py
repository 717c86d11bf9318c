# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/deliveries``, ``/v1/delivery-targets`` and ``/v1/files``: what agents deliver to people."""

from nova_workers.base.vocabulary import DeliveryKind, DeliveryStatus
from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.deliveries import DeliveryView, SentFileView, WaitingTarget


class Deliveries:
    """``/v1/deliveries``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
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
        return await self._transport.fetch(
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

    async def get(self, delivery_id: str) -> DeliveryView:
        """Return a delivery."""
        return await self._transport.fetch(DeliveryView, "GET", f"/v1/deliveries/{delivery_id}")

    async def replay(self, delivery_id: str) -> DeliveryView:
        """Send a delivery that ended again, or at once one that waits for its next attempt, under the same id."""
        return await self._transport.fetch(DeliveryView, "POST", f"/v1/deliveries/{delivery_id}/replay")

    async def close(self, delivery_id: str) -> DeliveryView:
        """Close a notification, file or note in the inbox."""
        return await self._transport.fetch(DeliveryView, "POST", f"/v1/deliveries/{delivery_id}/close")

    async def targets(self) -> Page[WaitingTarget]:
        """Return the webhooks and channels that failed and that deliveries wait for."""
        return await self._transport.fetch(Page[WaitingTarget], "GET", "/v1/delivery-targets")

    async def retry(self, target: str) -> None:
        """Try what waits for a webhook or a channel at once."""
        await self._transport.send("POST", f"/v1/delivery-targets/{target}/retry")


class Files:
    """``/v1/files``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        agent_id: str | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[SentFileView]:
        """Return a page of the files that agents sent, newest first."""
        return await self._transport.fetch(
            Page[SentFileView],
            "GET",
            "/v1/files",
            params={"agent_id": agent_id, "thread_id": thread_id, "limit": limit, "cursor": cursor},
        )

    async def get(self, file_id: str) -> SentFileView:
        """Return a file without its content."""
        return await self._transport.fetch(SentFileView, "GET", f"/v1/files/{file_id}")

    async def read(self, file_id: str) -> bytes:
        """Return the bytes of a file."""
        return (await self._transport.send("GET", f"/v1/files/{file_id}/content")).content

    async def delete(self, file_id: str) -> None:
        """Delete a file for good."""
        await self._transport.send("DELETE", f"/v1/files/{file_id}")
