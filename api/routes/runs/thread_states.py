"""``/v1/threads/{thread_id}/state``: the state document of a conversation."""

from fastapi import APIRouter

from nova_workers.contracts.http.thread_states import ThreadStatePatch, ThreadStateReplace, ThreadStateView
from nova_workers.domain.threads.rules.states import merge_state, replace_state
from nova_workers.domain.threads.sql.states import read_state

from ...auth import RunsCaller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import ThreadIdPath
from ...state import State

router = APIRouter(prefix="/v1/threads/{thread_id}/state", tags=["threads"], route_class=StrictRoute)


@router.get("", responses=problems(404, 410))
async def get_thread_state(thread_id: ThreadIdPath, caller: RunsReader, state: State) -> ThreadStateView:
    """Get the state document of a thread; before the first change it is empty and has version 0."""
    async with state.services.database.connection() as connection:
        return await read_state(connection, caller.tenant_id, thread_id)


@router.put("", responses=problems(404, 409, 410, body=True))
async def replace_thread_state(
    thread_id: ThreadIdPath, body: ThreadStateReplace, caller: RunsCaller, state: State
) -> ThreadStateView:
    """Replace the whole document, if it has the version that is given; 409 names the version that it has."""
    async with state.services.database.connection() as connection:
        return await replace_state(connection, caller.tenant_id, thread_id, body.state, version=body.version)


@router.patch("", responses=problems(404, 409, 410, body=True))
async def patch_thread_state(
    thread_id: ThreadIdPath, body: ThreadStatePatch, caller: RunsCaller, state: State
) -> ThreadStateView:
    """Change fields of the document by a JSON Merge Patch, and only at a version if one is given."""
    async with state.services.database.connection() as connection:
        return await merge_state(connection, caller.tenant_id, thread_id, body.patch, version=body.version)
