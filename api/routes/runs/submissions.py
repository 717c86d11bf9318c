"""Submission of messages: accept, accept and wait, accept and stream; to a thread, or to a new one."""

from fastapi import APIRouter, Request, Response

from nova_workers.contracts.http.wire import RunBatch, RunBatchView, RunCreate, RunView, StatelessRunCreate

from ...acceptance import Acceptance, answer_at_end
from ...auth import RunsReader
from ...batches import accept_batch
from ...direct_route import DirectRoute
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import RunIdPath, ThreadIdPath, TimeoutQuery
from ...state import State
from .events import EVENTS

router = APIRouter(prefix="/v1", tags=["runs"], route_class=DirectRoute)
batches = APIRouter(prefix="/v1", tags=["runs"], route_class=StrictRoute)

_ERRORS = problems(404, 409, 410, body=True)
_STREAM_ERRORS = problems(404, 409, 410, 429, body=True)
_UNFINISHED = {202: {"model": RunView, "description": "Not ended yet: the run's current state. It continues."}}


@router.post("/threads/{thread_id}/runs", status_code=202, response_model=RunView, responses=_ERRORS)
async def create_thread_run(thread_id: ThreadIdPath, body: RunCreate, acceptance: Acceptance) -> Response:
    """Send a message to the agent of a thread."""
    return await acceptance.accept(body, thread_id)


@router.post("/runs", status_code=202, response_model=RunView, responses=_ERRORS)
async def create_run(body: StatelessRunCreate, acceptance: Acceptance) -> Response:
    """Send a message to a thread, or to a new thread of an agent."""
    return await acceptance.accept(body, None)


@batches.post("/runs/batch", response_model=RunBatchView, responses=problems(body=True))
async def create_runs(body: RunBatch, acceptance: Acceptance) -> RunBatchView:
    """Send up to 100 messages. Each is accepted or refused separately; the answer has the outcomes in order."""
    return RunBatchView(items=await accept_batch(acceptance, body.items))


@router.post("/threads/{thread_id}/runs/wait", response_model=RunView, responses={**_UNFINISHED, **_ERRORS})
async def create_thread_run_and_wait(
    thread_id: ThreadIdPath, body: RunCreate, acceptance: Acceptance, timeout_s: TimeoutQuery = None
) -> Response:
    """Send a message and get the run once it has ended; 202 if that takes too long. The run continues either way."""
    return await acceptance.accept_and_wait(body, thread_id, timeout_s)


@router.post("/runs/wait", response_model=RunView, responses={**_UNFINISHED, **_ERRORS})
async def create_run_and_wait(
    body: StatelessRunCreate, acceptance: Acceptance, timeout_s: TimeoutQuery = None
) -> Response:
    """Send a message and get the run once it has ended; 202 if that takes too long. The run continues either way."""
    return await acceptance.accept_and_wait(body, None, timeout_s)


@router.post("/threads/{thread_id}/runs/stream", response_class=Response, responses={**EVENTS, **_STREAM_ERRORS})
async def create_thread_run_and_stream(thread_id: ThreadIdPath, body: RunCreate, acceptance: Acceptance) -> Response:
    """Send a message and get the run's events as they come. `Location` names the run."""
    return await acceptance.accept_and_stream(body, thread_id)


@router.post("/runs/stream", response_class=Response, responses={**EVENTS, **_STREAM_ERRORS})
async def create_run_and_stream(body: StatelessRunCreate, acceptance: Acceptance) -> Response:
    """Send a message and get the run's events as they come. `Location` names the run."""
    return await acceptance.accept_and_stream(body, None)


@router.get("/runs/{run_id}/wait", response_model=RunView, responses={**_UNFINISHED, **problems(404, 422)})
async def wait_for_run(
    run_id: RunIdPath, request: Request, caller: RunsReader, state: State, timeout_s: TimeoutQuery = None
) -> Response:
    """Get a run once it has ended; 202 with its current state if that takes too long."""
    return await answer_at_end(state, caller, request, run_id, timeout_s=timeout_s)
