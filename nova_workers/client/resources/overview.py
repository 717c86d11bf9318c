"""``/v1/attention`` and ``/v1/activity``."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.http.overview.attention import AttentionView

__all__ = ["Overview"]


class Overview:
    """What people look at first."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def attention(self, *, limit: int | None = None) -> AttentionView:
        """Return what needs a person: of each kind the number, and up to `limit` of the newest."""
        return await self._transport.fetch(AttentionView, "GET", "/v1/attention", params={"limit": limit})
