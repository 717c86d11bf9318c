"""``/v1/runs/{run_id}/timeline``: what happened in a run."""

from fastapi import APIRouter

from nova_workers.contracts.http.overview.timeline import RunTimeline
from nova_workers.domain.overview.sql.timeline import load_timeline

from ...auth import RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import RunIdPath
from ...state import State

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=StrictRoute)


@router.get("/{run_id}/timeline", responses=problems(400, 404, 422), name="get_run_timeline")
async def get_timeline(run_id: RunIdPath, caller: RunsReader, state: State, paging: PageQuery) -> RunTimeline:
    """Get a run's attempts, steps with model and tool calls, waits, compactions, effects, deliveries and child runs.

    Steps come in pages, oldest first; of each other list the newest 200. Long texts are cut.
    """
    listing = paging.of(caller.tenant_id, "timeline", int, run_id)
    async with state.services.database.connection() as connection:
        timeline = await load_timeline(connection, caller.tenant_id, run_id, after_step=listing.key, limit=listing.rows)
    page = listing.page(timeline.steps, lambda step: step.index)
    return timeline.model_copy(update={"steps": page.items, "next_cursor": page.next_cursor})
