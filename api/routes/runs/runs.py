"""``/v1/runs``: the state of runs; cancel, retry, edit and withdraw them."""

from fastapi import APIRouter

from nova_workers.contracts.http.wire import (
    BulkCancel,
    BulkCanceled,
    BulkRetried,
    BulkRetry,
    RunEdit,
    RunView,
)
from nova_workers.domain.runs.sql import reads as run_reads

from ...auth import RunsCaller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import RunIdPath
from ...state import State
from ...submitting import content_of, scaled
from ...workers import name_missing_worker

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=StrictRoute)


@router.post("/cancel", responses=problems(410, body=True))
async def cancel_runs(body: BulkCancel, caller: RunsCaller, state: State) -> BulkCanceled:
    """Cancel all open runs that match every given field, up to 1,000 per call; with `dry_run` only count them."""
    return await state.services.canceller.cancel_many(caller.tenant_id, body)


@router.post("/retry", responses=problems(410, body=True))
async def retry_runs(body: BulkRetry, caller: RunsCaller, state: State) -> BulkRetried:
    """Try all failed runs again that match every given field, up to 1,000 per call; with `dry_run` only count them."""
    return await state.services.retrier.retry_many(caller.tenant_id, body)


@router.get("/{run_id}", responses=problems(404))
async def get_run(run_id: RunIdPath, caller: RunsReader, state: State) -> RunView:
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
