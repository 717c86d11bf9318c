"""``/v1/work-orders``: submission, results, reviews and trails of work orders."""

from http import HTTPStatus
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Header, Query, Request, Response
from redis.exceptions import RedisError

from nova_workers.base.errors import Unavailable
from nova_workers.base.observability.tracing import current_traceparent
from nova_workers.base.vocabulary import OrderState
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.work_orders import (
    OrderReview,
    WorkOrderPartView,
    WorkOrderTrailEntry,
    WorkOrderTrailView,
    WorkOrderView,
)
from nova_workers.contracts.orders import AiWorkResultV1, customer_stop
from nova_workers.domain.orders.rules.door import AdmittedOrder
from nova_workers.domain.orders.rules.policies.choosing import presentation_of
from nova_workers.domain.orders.rules.views import running_result
from nova_workers.domain.orders.sql.ends import read_trail
from nova_workers.domain.orders.sql.records import OrderRow, get_order, list_orders, view_parts

from ...auth import AgentsReader, RunsCaller, RunsReader, SubmittingCaller, WorkspaceCaller
from ...json_body import StrictRoute
from ...openapi import ORDER, ORDER_RESULT, problems
from ...pagination import PageQuery
from ...params import OrderIdPath, TimeoutQuery
from ...state import ApiState, State
from .admission import Admitted
from .preferences import Preferences, read_preferences

_log = structlog.get_logger(__name__)

router = APIRouter(prefix="/v1/work-orders", tags=["work orders"], route_class=StrictRoute)

_RESULT = {"application/json": {"schema": ORDER_RESULT}}
_ENDED: dict[int | str, dict[str, Any]] = {200: {"description": "The result.", "content": _RESULT}}
_STATE: dict[int | str, dict[str, Any]] = {
    **_ENDED,
    202: {"description": "The present state: it runs, or waits for a person.", "content": _RESULT},
}
_REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"description": "The order cannot be read.", "content": _RESULT},
    413: problems(413)[413],
    415: {"description": "The order is not application/json.", "content": _RESULT},
    422: {"description": "The order is invalid; the result names the fields.", "content": _RESULT},
}
_GRACE_S = 0.5
"""After an order's own time: its end is then on its way."""

PreferHeader = Annotated[
    list[str] | None,
    Header(
        alias="Prefer",
        description="`respond-async` responds before the order ended; `wait=10` waits 10 seconds at most (RFC 7240).",
    ),
]
PolicyQuery = Annotated[str | None, Query(max_length=200, description="Only under this policy.")]


@router.post(
    "",
    response_class=Response,
    responses={**problems(409), **_STATE, **_REFUSED},
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": ORDER}}}},
)
async def submit_work_order(
    request: Request, admitted: Admitted, caller: SubmittingCaller, state: State, prefer: PreferHeader = None
) -> Response:
    """Submit an order, and get its result: within its `timeoutMs`, or as `Prefer` says; `Location` names it."""
    orders, preferences = state.services.orders, read_preferences(prefer or ())
    accepted = await orders.accept(
        admitted.order,
        admitted.policy,
        tenant_id=caller.tenant_id,
        traceparent=current_traceparent(),
        key_hashes=admitted.key_hashes,
    )
    try:
        patience_s = _patience_s(state, admitted, preferences)
        if accepted.settled is None and patience_s > 0:
            await state.order_follower.wait(accepted.trace_id, request.receive, timeout_s=patience_s)
        result = await orders.result_of(
            caller.tenant_id,
            accepted.trace_id,
            mode=presentation_of(admitted.order, admitted.policy),
            shared=accepted.shared,
            drafts=caller.may("workspace"),
            known=accepted.settled,
        )
    except (Unavailable, RedisError) as error:
        if accepted.settled is not None:
            raise
        # It is accepted, whatever happens later.
        _log.warning("http_request.answered_as_accepted", trace_id=accepted.trace_id, error=str(error))
        result = running_result(accepted.trace_id)
    answer = _answer(result)
    if answer.status_code == HTTPStatus.ACCEPTED:
        answer.headers["Location"] = f"/v1/work-orders/{accepted.trace_id}"
    if preferences.applied and accepted.settled is None:
        answer.headers["Preference-Applied"] = preferences.applied
    return answer


@router.get("", responses=problems(400, 422))
async def list_work_orders(
    *,
    caller: RunsReader,
    state: State,
    order_state: Annotated[OrderState | None, Query(alias="state", description="Only in this state.")] = None,
    policy_id: PolicyQuery = None,
    paging: PageQuery,
) -> Page[WorkOrderView]:
    """List orders, newest first, without their content."""
    listing = paging.of(caller.tenant_id, "work_orders", str, order_state, policy_id)
    async with state.services.database.connection() as connection:
        rows = await list_orders(
            connection, caller.tenant_id, before=listing.key, state=order_state, policy_id=policy_id, limit=listing.rows
        )
    return listing.page([_view(row) for row in rows], lambda view: view.trace_id)


@router.get("/{trace_id}", response_class=Response, responses={**_STATE, **problems(404, 422)})
async def get_work_order(trace_id: OrderIdPath, caller: RunsReader, state: State) -> Response:
    """Get the result of an order, or its present state."""
    return _answer(await state.services.orders.result_of(caller.tenant_id, trace_id, drafts=caller.may("workspace")))


@router.get("/{trace_id}/wait", response_class=Response, responses={**_STATE, **problems(404, 422)})
async def wait_for_work_order(
    trace_id: OrderIdPath, request: Request, caller: RunsReader, state: State, timeout_s: TimeoutQuery = None
) -> Response:
    """Get the result of an order once it has ended or needs a person; 202 with its state if that takes too long."""
    orders, longest_s = state.services.orders, state.services.settings.api.wait_timeout_s
    drafts = caller.may("workspace")
    result = await orders.result_of(caller.tenant_id, trace_id, drafts=drafts)
    if result.stop_reason == "in_progress":
        await state.order_follower.wait(
            trace_id, request.receive, timeout_s=longest_s if timeout_s is None else min(timeout_s, longest_s)
        )
        result = await orders.result_of(caller.tenant_id, trace_id, drafts=drafts)
    return _answer(result)


@router.post("/{trace_id}/cancel", response_class=Response, responses={**_ENDED, **problems(404, 409, 422)})
async def cancel_work_order(trace_id: OrderIdPath, caller: RunsCaller, state: State) -> Response:
    """Cancel an order that runs or is in review, and get its result. Equal orders that wait for it get it, too."""
    return _answer(await state.services.order_canceller.cancel(caller.tenant_id, trace_id, by=caller.key_id))


@router.get(
    "/{trace_id}/internal",
    response_class=Response,
    responses={**_STATE, **problems(404, 422)},
    name="get_internal_work_order",
)
async def get_work_order_internally(trace_id: OrderIdPath, caller: AgentsReader, state: State) -> Response:
    """Get the result with the cost by model and provider, and with what the policy hides."""
    return _answer(
        await state.services.orders.result_of(caller.tenant_id, trace_id, internal=True, drafts=caller.may("workspace"))
    )


@router.post("/{trace_id}/review", response_class=Response, responses={**_ENDED, **problems(404, 409, body=True)})
async def review_work_order(
    trace_id: OrderIdPath, body: OrderReview, caller: WorkspaceCaller, state: State
) -> Response:
    """Decide on the outcome of an order in review, and get its result. The first decision counts."""
    return _answer(
        await state.services.order_reviews.decide(
            caller.tenant_id, trace_id, body.verdict, payload=body.payload, by=caller.key_id
        )
    )


@router.get("/{trace_id}/parts", responses=problems(404, 422))
async def list_work_order_parts(trace_id: OrderIdPath, caller: AgentsReader, state: State) -> Page[WorkOrderPartView]:
    """List the model jobs of an order with their runs and costs, oldest first, in one page."""
    async with state.services.database.connection() as connection:
        await get_order(connection, caller.tenant_id, trace_id)
        return Page(items=await view_parts(connection, caller.tenant_id, trace_id))


@router.get("/{trace_id}/trail", responses=problems(404, 422))
async def get_work_order_trail(trace_id: OrderIdPath, caller: RunsReader, state: State) -> WorkOrderTrailView:
    """Get the customer trail of an order."""
    return await _trail(state, caller.tenant_id, trace_id, internal=False)


@router.get("/{trace_id}/internal-trail", responses=problems(404, 422))
async def get_internal_work_order_trail(
    trace_id: OrderIdPath, caller: AgentsReader, state: State
) -> WorkOrderTrailView:
    """Get the internal trail of an order: parts, models, figures and internal stop reasons."""
    return await _trail(state, caller.tenant_id, trace_id, internal=True)


async def _trail(state: ApiState, tenant_id: str, trace_id: str, *, internal: bool) -> WorkOrderTrailView:
    async with state.services.database.connection() as connection:
        await get_order(connection, tenant_id, trace_id)
        entries = await read_trail(connection, tenant_id, trace_id, ["internal" if internal else "customer"])
    return WorkOrderTrailView(trace_id=trace_id, items=[WorkOrderTrailEntry(**entry) for entry in entries])


def _patience_s(state: ApiState, admitted: AdmittedOrder, preferences: Preferences) -> float:
    """Return how long a request waits: the time of the order, bounded by the setting and by what the client prefers."""
    preferred_s = preferences.wait_s
    if preferred_s is None and preferences.respond_async:
        return 0.0
    caps = admitted.policy.caps
    timeout_ms = min(admitted.order.constraints.timeout_ms or caps.timeout_ms, caps.timeout_ms)
    longest_s = min(timeout_ms / 1000 + _GRACE_S, state.services.settings.api.wait_timeout_s)
    return longest_s if preferred_s is None else min(preferred_s, longest_s)


def _answer(result: AiWorkResultV1) -> Response:
    status = 202 if result.status == "in_progress" else 200
    return Response(
        result.model_dump_json(by_alias=True, exclude_none=True), status_code=status, media_type="application/json"
    )


def _view(row: OrderRow) -> WorkOrderView:
    reason = "in_progress" if row.stop_reason is None else customer_stop(row.stop_reason).stop_reason
    return WorkOrderView(
        trace_id=row.id,
        state=row.state,
        stop_reason=reason,
        needs_human=row.needs_human,
        scope=row.scope,
        policy_id=row.policy_id,
        policy_version=row.policy_version,
        trace=row.trace,
        created_at=row.created_at,
        ended_at=row.ended_at,
        review_due_at=row.review_due_at if row.state == "review" else None,
    )
