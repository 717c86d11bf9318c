"""``/v1/run-lists``: lists of runs that the person who signs in with the key saved."""

from fastapi import APIRouter

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.run_lists import RunListSave, RunListView
from nova_workers.domain.runs.rules import run_lists

from ...auth import RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import RunListIdPath
from ...state import State

router = APIRouter(prefix="/v1/run-lists", tags=["runs"], route_class=StrictRoute)

# Who may read runs may save what to look for in them: a list changes nothing for others.


@router.get("", responses=problems())
async def list_run_lists(caller: RunsReader, state: State) -> Page[RunListView]:
    """List what the key saved, in the order of its first saving. There are few: one page has all."""
    async with state.services.database.connection() as connection:
        return Page(items=await run_lists.saved_lists(connection, caller.tenant_id, caller.principal))


@router.post("", status_code=201, responses=problems(409, body=True))
async def save_run_list(body: RunListSave, caller: RunsReader, state: State) -> RunListView:
    """Save a filter and an order of runs under a name, in place of what the key saved under it before."""
    async with state.services.database.connection() as connection:
        return await run_lists.save_list(connection, caller.tenant_id, caller.principal, body)


@router.delete("/{list_id}", status_code=204, responses=problems(404))
async def delete_run_list(list_id: RunListIdPath, caller: RunsReader, state: State) -> None:
    """Delete a list that the key saved."""
    async with state.services.database.connection() as connection:
        await run_lists.delete_list(connection, caller.tenant_id, caller.principal, list_id)
