"""``/v1/notes``: markdown documents of agents."""

from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.notes import NoteCreate, NotePatch, NoteSummary, NoteView
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.notes import rules as notes
from nova_workers.domain.notes.rules import NoteChange
from nova_workers.domain.notes.sql import list_notes

from ...auth import WorkspaceCaller, WorkspaceReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdQuery, Flag, NoteIdPath
from ...state import State

router = APIRouter(prefix="/v1/notes", tags=["notes"], route_class=StrictRoute)


@router.post("", status_code=201, responses=problems(404, 409, 410, body=True))
async def create_note(body: NoteCreate, caller: WorkspaceCaller, state: State) -> NoteView:
    """Create a note of an agent."""
    return await notes.create_note(
        state.services.database,
        caller.tenant_id,
        body.agent_id,
        title=body.title,
        content=body.content,
        shared=body.shared,
        pinned=body.pinned,
    )


@router.get("", responses=problems(400, 410, 422), name="list_notes")
async def list_all_notes(
    *,
    caller: WorkspaceReader,
    state: State,
    agent_id: AgentIdQuery = None,
    pinned: Annotated[Flag | None, Query(description="Only those that are, or are not.")] = None,
    shared: Annotated[Flag | None, Query(description="Only those that are, or are not.")] = None,
    paging: PageQuery,
) -> Page[NoteSummary]:
    """List notes without their content, newest first, also drafts, which are not shared."""
    listing = paging.of(caller.tenant_id, "notes", str, agent_id, pinned, shared)
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, agent_id)
        rows = await list_notes(
            connection,
            caller.tenant_id,
            agent_id=agent_id,
            pinned=pinned,
            shared=shared,
            before=listing.key,
            limit=listing.rows,
        )
    return listing.page(rows, lambda note: note.id)


@router.get("/{note_id}", responses=problems(404))
async def get_note(note_id: NoteIdPath, caller: WorkspaceReader, state: State) -> NoteView:
    """Get a note with its content."""
    return await notes.get_note(state.services.database, caller.tenant_id, note_id)


@router.patch("/{note_id}", responses=problems(404, 412, body=True))
async def patch_note(note_id: NoteIdPath, body: NotePatch, caller: WorkspaceCaller, state: State) -> NoteView:
    """Change the given fields. A note that is no longer shared is removed from the outbox."""
    change = NoteChange(title=body.title, content=body.content, shared=body.shared, pinned=body.pinned)
    return await notes.change_note(state.services.work, caller.tenant_id, note_id, change, known=body.updated_at)


@router.delete("/{note_id}", status_code=204, responses=problems(404))
async def delete_note(note_id: NoteIdPath, caller: WorkspaceCaller, state: State) -> None:
    """Delete a note for good."""
    await notes.delete_note(state.services.database, caller.tenant_id, note_id)
