# Generated from nova_workers/client/resources/overview.py by `make format`: change that file instead.
"""``/v1/attention`` and ``/v1/activity``."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.http.overview.attention import AttentionView

__all__ = ["Overview"]


class Overview:
    """What people look at first."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def attention(self, *, limit: int | None = None) -> AttentionView:
        """Return what needs a person: of each kind the number, and up to `limit` of the newest."""
        return self._transport.fetch(AttentionView, "GET", "/v1/attention", params={"limit": limit})
