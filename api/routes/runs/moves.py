"""``/v1/runs/{run_id}``: why a run does not move, and what moves it."""

from fastapi import APIRouter

from nova_workers.contracts.http.reasons import RunFail, RunReasons
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.runs.rules.reasons import reasons_of
from nova_workers.domain.runs.sql.reasons import read_run_facts

from ...auth import RunsCaller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import RunIdPath
from ...state import State
from ...workers import look_at_queue, name_missing_worker

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=StrictRoute)


@router.get("/{run_id}/reasons", responses=problems(404), name="get_run_reasons")
async def get_reasons(run_id: RunIdPath, caller: RunsReader, state: State) -> RunReasons:
    """Get every reason why a run has not moved, with times and what helps."""
    async with state.services.database.connection() as connection:
        facts = await read_run_facts(connection, caller.tenant_id, run_id)
    return reasons_of(facts, await look_at_queue(state.services.redis, facts.queue, facts.thread_id))


@router.post("/{run_id}/kick", responses=problems(404, 409))
async def kick_run(run_id: RunIdPath, caller: RunsCaller, state: State) -> RunView:
    """Look after a queued or waiting run now: ring for it, let it try its provider, end what is due."""
    run = await state.services.mover.kick(caller.tenant_id, run_id)
    return await name_missing_worker(state.services.redis, run)


@router.post("/{run_id}/requeue", responses=problems(404, 409))
async def requeue_run(run_id: RunIdPath, caller: RunsCaller, state: State) -> RunView:
    """Take a running run back from a worker whose lease has expired. It continues after its last committed step."""
    run = await state.services.mover.requeue(caller.tenant_id, run_id)
    return await name_missing_worker(state.services.redis, run)


@router.post("/{run_id}/fail", responses=problems(404, 409, body=True))
async def fail_run(run_id: RunIdPath, body: RunFail, caller: RunsCaller, state: State) -> RunView:
    """Let a run that had begun, and that no worker holds, end as failed, so that what waits for it goes on."""
    run = await state.services.mover.fail(caller.tenant_id, run_id, body.reason)
    return await name_missing_worker(state.services.redis, run)
