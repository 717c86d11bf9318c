# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/notes``: markdown documents of agents."""

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.notes import NoteCreate, NotePatch, NoteSummary, NoteView


class Notes:
    """``/v1/notes``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        agent_id: str | None = None,
        pinned: bool | None = None,
        shared: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[NoteSummary]:
        """Return a page of notes without their content, newest first."""
        return await self._transport.fetch(
            Page[NoteSummary],
            "GET",
            "/v1/notes",
            params={"agent_id": agent_id, "pinned": pinned, "shared": shared, "limit": limit, "cursor": cursor},
        )

    async def get(self, note_id: str) -> NoteView:
        """Return a note with its content."""
        return await self._transport.fetch(NoteView, "GET", f"/v1/notes/{note_id}")

    async def create(self, note: NoteCreate) -> NoteView:
        """Create a note of an agent."""
        return await self._transport.fetch(NoteView, "POST", "/v1/notes", body=note)

    async def patch(self, note_id: str, change: NotePatch) -> NoteView:
        """Change the fields that `change` sets."""
        return await self._transport.fetch(NoteView, "PATCH", f"/v1/notes/{note_id}", body=change)

    async def delete(self, note_id: str) -> None:
        """Delete a note for good."""
        await self._transport.send("DELETE", f"/v1/notes/{note_id}")
