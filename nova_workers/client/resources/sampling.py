# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""The client's calls of ``/v1/agents/{agent_id}/sampling``."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.http.sampling import SamplingPut, SamplingView


class Sampling:
    """``/v1/agents/{agent_id}/sampling``: a share of the live runs of an agent is judged."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def put(self, agent_id: str, sampling: SamplingPut) -> SamplingView:
        """Let a share of the live runs of an agent be judged, or change how."""
        return await self._transport.fetch(SamplingView, "PUT", f"/v1/agents/{agent_id}/sampling", body=sampling)

    async def get(self, agent_id: str) -> SamplingView:
        """Return the sampling of an agent, with its scores over the last 30 days."""
        return await self._transport.fetch(SamplingView, "GET", f"/v1/agents/{agent_id}/sampling")

    async def delete(self, agent_id: str) -> None:
        """Judge no more live runs of an agent. Its scores stay."""
        await self._transport.send("DELETE", f"/v1/agents/{agent_id}/sampling")
