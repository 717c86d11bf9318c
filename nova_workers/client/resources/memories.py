# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/memories`` and ``/v1/search``: memories, and the search in messages."""

from datetime import datetime

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.history import SearchResult
from nova_workers.contracts.http.memories import MemoryCreate, MemoryView


class Memories:
    """``/v1/memories``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self, *, contains: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[MemoryView]:
        """Return a page of memories, newest first."""
        return await self._transport.fetch(
            Page[MemoryView], "GET", "/v1/memories", params={"contains": contains, "limit": limit, "cursor": cursor}
        )

    async def create(self, memory: MemoryCreate) -> MemoryView:
        """Save a memory for all agents. If the same text exists, it is returned."""
        return await self._transport.fetch(MemoryView, "POST", "/v1/memories", body=memory)

    async def delete(self, memory_id: str) -> None:
        """Delete a memory."""
        await self._transport.send("DELETE", f"/v1/memories/{memory_id}")


class History:
    """``/v1/search``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def search(
        self,
        query: str,
        *,
        agent_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> SearchResult:
        """Return the messages that match a query, best first.

        Args:
            query: Words, or a question.
            agent_id: Only conversations of this agent.
            since: Only from this moment on; aware.
            until: Only before this moment; aware.
            limit: Most messages, up to 50.
        """
        return await self._transport.fetch(
            SearchResult,
            "GET",
            "/v1/search",
            params={"q": query, "agent_id": agent_id, "since": since, "until": until, "limit": limit},
        )
