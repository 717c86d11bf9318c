"""``/v1/memories``: facts that all agents of a tenant share."""

from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.base.errors import missing
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.memories import MAX_MEMORY_CHARS, PERSON, MemoryCreate, MemoryView
from nova_workers.domain.memories import sql as ledger

from ...auth import WorkspaceCaller, WorkspaceReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import MemoryIdPath
from ...state import State

router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)

ContainsQuery = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MAX_MEMORY_CHARS,
        pattern=r"^[^\x00]+$",
        description="Only those with these words, whatever their case.",
    ),
]


@router.post("", status_code=201, responses=problems(409, body=True))
async def create_memory(body: MemoryCreate, caller: WorkspaceCaller, state: State) -> MemoryView:
    """Save a fact for all agents. If the same text exists, it is returned."""
    async with state.services.database.connection() as connection:
        return _view(await ledger.save_memory(connection, caller.tenant_id, PERSON, body.content))


@router.get("", responses=problems(400, 422))
async def list_memories(
    *,
    caller: WorkspaceReader,
    state: State,
    contains: ContainsQuery = None,
    paging: PageQuery,
) -> Page[MemoryView]:
    """List memories, newest first."""
    listing = paging.of(caller.tenant_id, "memories", str, contains)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_memories(
            connection,
            caller.tenant_id,
            contains=contains,
            before=listing.key,
            limit=listing.rows,
        )
    return listing.page([_view(row) for row in rows], lambda memory: memory.id)


@router.delete("/{memory_id}", status_code=204, responses=problems(404))
async def delete_memory(memory_id: MemoryIdPath, caller: WorkspaceCaller, state: State) -> None:
    """Delete a memory."""
    async with state.services.database.connection() as connection:
        deleted = await ledger.delete_memory(connection, caller.tenant_id, memory_id)
    if not deleted:
        raise missing("memory", memory_id)


def _view(memory: ledger.Memory) -> MemoryView:
    return MemoryView(id=memory.id, content=memory.content, saved_by=memory.agent_id, created_at=memory.created_at)
