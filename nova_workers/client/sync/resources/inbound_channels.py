# Generated from nova_workers/client/resources/inbound_channels.py by `make format`: change that file instead.
"""``/v1/inbound-channels``."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.inbound_channels import InboundChannelView


class InboundChannels:
    """``/v1/inbound-channels``: the processes through which people write to agents."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Page[InboundChannelView]:
        """Return the channels that a process serves or has served, in one page."""
        return self._transport.fetch(Page[InboundChannelView], "GET", "/v1/inbound-channels")

    def retry(self, channel: str) -> None:
        """Let a channel that rests after failures try now: within seconds."""
        self._transport.send("POST", f"/v1/inbound-channels/{channel}/retry")
