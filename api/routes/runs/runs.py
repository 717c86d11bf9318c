"""``/v1/runs``: the state of runs; cancel, retry, edit and withdraw them."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from nova_workers.contracts.bodies import Moment, Page
from nova_workers.contracts.http.wire import (
    BulkCancel,
    BulkCanceled,
    BulkRetried,
    BulkRetry,
    RunEdit,
    RunQueue,
    RunStatus,
    RunView,
)
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.runs.sql import reads as run_reads
from nova_workers.domain.runs.sql.filters import RunFilter

from ...auth import RunsCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdQuery, MediaQuery, RunIdPath, ThreadIdQuery
from ...state import State
from ...submitting import content_of, scaled
from ...workers import name_missing_worker

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=StrictRoute)

StatusQuery = Annotated[
    list[RunStatus] | None, Query(alias="status", max_length=10, description="Only with this status; may be repeated.")
]
_Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
TriggerIdQuery = Annotated[_Id | None, Query(description="Only those that this trigger fired.")]
ParentRunIdQuery = Annotated[_Id | None, Query(description="Only those that this run started.")]
SinceQuery = Annotated[Moment | None, Query(description="Only those submitted at this time or later.")]
UntilQuery = Annotated[Moment | None, Query(description="Only those submitted before this time.")]
QueueQuery = Annotated[RunQueue | None, Query(description="Only of this queue.")]


@router.get("", responses=problems(400, 410, 422))
async def list_runs(
    *,
    caller: RunsCaller,
    state: State,
    thread_id: ThreadIdQuery = None,
    agent_id: AgentIdQuery = None,
    statuses: StatusQuery = None,
    queue: QueueQuery = None,
    trigger_id: TriggerIdQuery = None,
    parent_run_id: ParentRunIdQuery = None,
    since: SinceQuery = None,
    until: UntilQuery = None,
    media: MediaQuery = True,
    paging: PageQuery,
) -> Page[RunView]:
    """List runs, newest first."""
    which = RunFilter(
        thread_id=thread_id,
        agent_id=agent_id,
        statuses=frozenset(statuses or ()),
        queue=queue,
        trigger_id=trigger_id,
        parent_run_id=parent_run_id,
        since=since,
        until=until,
    )
    filters = (thread_id, agent_id, sorted(which.statuses), queue, trigger_id, parent_run_id, since, until)
    listing = paging.of(caller.tenant_id, "runs", str, *filters)
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, agent_id)
        rows = await run_reads.list_runs(
            connection,
            caller.tenant_id,
            which,
            before=listing.key,
            limit=listing.rows,
            media=media,
        )
    return listing.page(rows, lambda run: run.id)


@router.post("/cancel", responses=problems(410, body=True))
async def cancel_runs(body: BulkCancel, caller: RunsCaller, state: State) -> BulkCanceled:
    """Cancel all open runs that match every given field, up to 1,000 per call; with `dry_run` only count them."""
    return await state.services.canceller.cancel_many(caller.tenant_id, body)


@router.post("/retry", responses=problems(410, body=True))
async def retry_runs(body: BulkRetry, caller: RunsCaller, state: State) -> BulkRetried:
    """Try all failed runs again that match every given field, up to 1,000 per call; with `dry_run` only count them."""
    return await state.services.retrier.retry_many(caller.tenant_id, body)


@router.get("/{run_id}", responses=problems(404))
async def get_run(run_id: RunIdPath, caller: RunsCaller, state: State) -> RunView:
    """Get a run as it is now; while it is queued, with its position and what it waits for."""
    async with state.services.database.connection() as connection:
        run = await run_reads.get_run(connection, caller.tenant_id, run_id)
    return await name_missing_worker(state.services.redis, run)


@router.patch("/{run_id}", responses=problems(404, 409, body=True))
async def edit_run(run_id: RunIdPath, body: RunEdit, caller: RunsCaller, state: State) -> RunView:
    """Replace the message of a run that is still queued."""
    content = content_of(await scaled(body.message), max_chars=state.services.settings.api.max_message_chars)
    run = await state.services.canceller.edit(caller.tenant_id, run_id, content)
    return await name_missing_worker(state.services.redis, run)


@router.delete("/{run_id}", status_code=204, responses=problems(404, 409))
async def withdraw_run(run_id: RunIdPath, caller: RunsCaller, state: State) -> None:
    """Remove a run that is still queued."""
    await state.services.canceller.withdraw(caller.tenant_id, run_id)


@router.post("/{run_id}/cancel", responses=problems(404, 409))
async def cancel_run(run_id: RunIdPath, caller: RunsCaller, state: State) -> RunView:
    """Cancel a run. A running one stops in a moment and keeps its partial text; canceling twice changes nothing."""
    run = await state.services.canceller.cancel(caller.tenant_id, run_id)
    return await name_missing_worker(state.services.redis, run)


@router.post("/{run_id}/retry", responses=problems(404, 409))
async def retry_run(run_id: RunIdPath, caller: RunsCaller, state: State) -> RunView:
    """Try a failed run again, as a further attempt of the same run: it continues after its last committed step."""
    run = await state.services.retrier.retry(caller.tenant_id, run_id)
    return await name_missing_worker(state.services.redis, run)
