# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/inbound-channels``."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.inbound_channels import InboundChannelView


class InboundChannels:
    """``/v1/inbound-channels``: the processes through which people write to agents."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self) -> Page[InboundChannelView]:
        """Return the channels that a process serves or has served, in one page."""
        return await self._transport.fetch(Page[InboundChannelView], "GET", "/v1/inbound-channels")

    async def retry(self, channel: str) -> None:
        """Let a channel that rests after failures try now: within seconds."""
        await self._transport.send("POST", f"/v1/inbound-channels/{channel}/retry")
