# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/leases``."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.http.leases import LeaseRequest, LeaseView


class Leases:
    """``/v1/leases``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def put(self, name: str, request: LeaseRequest) -> LeaseView:
        """Acquire a lease, or with its token renew or release it; `Conflict` if another process has it."""
        return await self._transport.fetch(LeaseView, "PUT", f"/v1/leases/{name}", body=request)
