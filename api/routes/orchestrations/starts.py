"""``/v1/orchestrations``: start and follow up trees of agents, and wait for their end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, Request, Response
from redis.exceptions import RedisError

from nova_workers.base.errors import Unavailable
from nova_workers.contracts.http.orchestrations import OrchestrationContinue, OrchestrationCreate, OrchestrationView
from nova_workers.contracts.http.started import Started
from nova_workers.domain.orchestrations.sql.trees import get_orchestration
from nova_workers.ledger.write_record import name_outcome

from ...acceptance import longest_wait_s
from ...auth import Caller, RunsCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import OrchestrationIdPath, TimeoutQuery
from ...repeats import RepeatableRequest, Repeats
from ...state import ApiState, state_of
from ...streaming.tree_delivery import TreeTarget

_log = structlog.get_logger(__name__)

router = APIRouter(prefix="/v1/orchestrations", tags=["orchestrations"], route_class=StrictRoute)

_ERRORS = problems(404, 409, 410, body=True)
_UNFINISHED = {
    202: {"model": OrchestrationView, "description": "Not ended yet: the orchestration's current state. It continues."}
}


@dataclass(frozen=True, slots=True)
class _Request:
    """A request about an orchestration, and how it is answered."""

    state: ApiState
    caller: Caller
    request: Request

    async def start(self, body: OrchestrationCreate, repeats: Repeats) -> Started:
        """Start an orchestration under the tenant's configuration as it is now."""
        starter = self.state.services.orchestration_starter
        return await starter.start(self.caller.tenant_id, body, request=repeats.bound_to(body))

    async def continue_(self, orchestration_id: str, body: OrchestrationContinue, repeats: Repeats) -> Started:
        """Give an ended master a follow-up task."""
        return await self.state.services.orchestrations.continue_(
            self.caller.tenant_id, orchestration_id, body.task, request=repeats.bound_to(body)
        )

    async def answer(self, started: Started, status: int = 200) -> Response:
        """Respond with the orchestration as the request left it."""
        _name(started)
        view = started.view or await self._view(started.orchestration_id)
        return _json(view, status, _headers(started))

    async def answer_started_at_end(self, started: Started, timeout_s: float | None) -> Response:
        """Respond as `answer_at_end` does to a request that started or continued it; if that fails, as at its start."""
        _name(started)
        try:
            return await self.answer_at_end(started.orchestration_id, timeout_s, _headers(started))
        except (Unavailable, RedisError) as error:
            if started.view is None:
                raise
            # It was started, whatever happens later.
            _log.warning(
                "http_request.answered_as_accepted", orchestration_id=started.orchestration_id, error=str(error)
            )
            return _json(started.view, 202, _headers(started))

    async def answer_at_end(
        self, orchestration_id: str, timeout_s: float | None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Respond 200 once the orchestration has ended.

        If that takes too long, or one of its agents waits for a person, respond 202 with its current state.

        Raises:
            NotFound: No such orchestration in this tenant.
        """
        await self.state.tree_follower.wait(
            TreeTarget(self.caller.tenant_id, orchestration_id),
            self.request.receive,
            timeout_s=longest_wait_s(self.state, timeout_s),
        )
        view = await self._view(orchestration_id)
        return _json(view, 202 if view.finished_at is None else 200, headers)

    async def _view(self, orchestration_id: str) -> OrchestrationView:
        async with self.state.services.database.connection() as connection:
            return await get_orchestration(connection, self.caller.tenant_id, orchestration_id)


async def _request(request: Request, caller: RunsCaller) -> _Request:
    return _Request(state_of(request), caller, request)


OrchestrationRequest = Annotated[_Request, Depends(_request)]


@router.post("", status_code=201, response_model=OrchestrationView, responses=_ERRORS)
async def start_orchestration(
    body: OrchestrationCreate, request: OrchestrationRequest, repeats: RepeatableRequest
) -> Response:
    """Start a tree of agents: its master's run is queued. The tenant's stored configuration applies, as it is now."""
    started = await request.start(body, repeats)
    return await request.answer(started, 201)


@router.post("/wait", response_model=OrchestrationView, responses={**_UNFINISHED, **_ERRORS})
async def start_orchestration_and_wait(
    body: OrchestrationCreate,
    request: OrchestrationRequest,
    repeats: RepeatableRequest,
    timeout_s: TimeoutQuery = None,
) -> Response:
    """Start a tree of agents and get it once it has ended; 202 if that takes too long. It continues either way."""
    started = await request.start(body, repeats)
    return await request.answer_started_at_end(started, timeout_s)


@router.get(
    "/{orchestration_id}/wait", response_model=OrchestrationView, responses={**_UNFINISHED, **problems(404, 422)}
)
async def wait_for_orchestration(
    orchestration_id: OrchestrationIdPath, request: OrchestrationRequest, timeout_s: TimeoutQuery = None
) -> Response:
    """Get an orchestration once it has ended; 202 with its current state if that takes too long."""
    return await request.answer_at_end(orchestration_id, timeout_s)


@router.post("/{orchestration_id}/continue", response_model=OrchestrationView, responses=problems(404, 409, body=True))
async def continue_orchestration(
    orchestration_id: OrchestrationIdPath,
    body: OrchestrationContinue,
    request: OrchestrationRequest,
    repeats: RepeatableRequest,
) -> Response:
    """Give an ended master a follow-up task. It keeps its identity, its conversation and its children."""
    continued = await request.continue_(orchestration_id, body, repeats)
    return await request.answer(continued)


@router.post(
    "/{orchestration_id}/continue/wait",
    response_model=OrchestrationView,
    responses={**_UNFINISHED, **problems(404, 409, body=True)},
)
async def continue_orchestration_and_wait(
    orchestration_id: OrchestrationIdPath,
    body: OrchestrationContinue,
    request: OrchestrationRequest,
    repeats: RepeatableRequest,
    timeout_s: TimeoutQuery = None,
) -> Response:
    """Give an ended master a follow-up task and get the orchestration once it has ended; 202 if that takes too long."""
    continued = await request.continue_(orchestration_id, body, repeats)
    return await request.answer_started_at_end(continued, timeout_s)


def _name(started: Started) -> None:
    name_outcome(f"/v1/orchestrations/{started.orchestration_id}", orchestration_id=started.orchestration_id)


def _headers(started: Started) -> dict[str, str]:
    headers = {"location": f"/v1/orchestrations/{started.orchestration_id}"}
    if started.replayed:
        headers["idempotent-replayed"] = "true"
    return headers


def _json(view: OrchestrationView, status: int, headers: Mapping[str, str] | None) -> Response:
    return Response(view.model_dump_json(), status_code=status, headers=headers, media_type="application/json")
