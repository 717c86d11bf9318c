# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/run-lists``."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.run_lists import RunListSave, RunListView


class RunLists:
    """``/v1/run-lists``: what the key saved."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self) -> Page[RunListView]:
        """Return the lists of runs that the key saved, in one page."""
        return await self._transport.fetch(Page[RunListView], "GET", "/v1/run-lists")

    async def save(self, saved: RunListSave) -> RunListView:
        """Save a filter and an order of runs under a name, in place of what has that name."""
        return await self._transport.fetch(RunListView, "POST", "/v1/run-lists", body=saved)

    async def delete(self, list_id: str) -> None:
        """Delete a list that the key saved."""
        await self._transport.send("DELETE", f"/v1/run-lists/{list_id}")
