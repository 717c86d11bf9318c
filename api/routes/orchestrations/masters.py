"""``/v1/orchestrations/{id}/master/…``: programs outside of the fleet that are the master of an orchestration."""

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from nova_workers.base.ids import new_id
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.orchestrations import (
    MasterCall,
    MasterComplete,
    MasterReply,
    MasterTool,
    OrchestrationView,
)
from nova_workers.contracts.http.wire import IDEMPOTENCY_KEY_PATTERN
from nova_workers.contracts.waits import AwaitMessages
from nova_workers.domain.orchestrations.tools.external import MasterAnswer

from ...acceptance import longest_wait_s
from ...auth import RunsCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import OrchestrationIdPath, TimeoutQuery
from ...state import CAPABILITIES, State
from ...streaming.tree_delivery import TreeTarget

router = APIRouter(prefix="/v1/orchestrations", tags=["orchestrations"], route_class=StrictRoute)

CallKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=IDEMPOTENCY_KEY_PATTERN,
        description="Names the call: a repeated one finds what the first one did, and goes on waiting for it.",
    ),
]
_PENDING = {202: {"model": MasterReply, "description": "No result yet: send the call again, with the same key."}}


@router.get("/master/tools", responses=problems())
async def list_master_tools(caller: RunsCaller, state: State) -> Page[MasterTool]:
    """List the tools of external masters. There are few: one page holds all."""
    return Page(items=state.services.external_masters.describe())


@router.post(
    "/{orchestration_id}/master/calls",
    response_model=MasterReply,
    responses={**_PENDING, **problems(404, 409, body=True)},
    dependencies=[CAPABILITIES],
)
async def call_master_tool(
    *,
    orchestration_id: OrchestrationIdPath,
    body: MasterCall,
    request: Request,
    caller: RunsCaller,
    state: State,
    idempotency_key: CallKey = None,
    timeout_s: TimeoutQuery = None,
) -> Response:
    """Call a tool as the master and get its result. One that waits for agents is answered once they have answered."""
    masters, key = state.services.external_masters, idempotency_key or new_id("evt")
    reply = await masters.call(caller.tenant_id, orchestration_id, body.tool, body.arguments, key)
    if isinstance(reply, MasterAnswer):
        return _answer(reply)
    awaited, answer = reply, None

    async def is_answered() -> bool:
        nonlocal answer
        answer = await masters.receive(caller.tenant_id, orchestration_id, awaited, key)
        return answer is not None

    longest_s = longest_wait_s(state, timeout_s)
    ending = await state.tree_follower.wait_until(
        TreeTarget(caller.tenant_id, orchestration_id),
        is_answered,
        _may_answer,
        request.receive,
        timeout_s=min(longest_s, awaited.timeout_s or longest_s),
    )
    return _answer(answer or _timed_out(awaited, longest_s if ending == "timeout" else 0))


@router.post("/{orchestration_id}/master/complete", responses=problems(404, 409, body=True))
async def complete_orchestration(
    orchestration_id: OrchestrationIdPath, body: MasterComplete, caller: RunsCaller, state: State
) -> OrchestrationView:
    """End an orchestration as its external master, with its result. Children that still work are killed."""
    return await state.services.external_masters.complete(
        caller.tenant_id, orchestration_id, body.summary, body.artifacts
    )


def _may_answer(event: JsonObject) -> bool:
    # A master that runs again may have been woken with a question that was sent before.
    woken = event["type"] == "agent_state" and event["role"] == "MASTER" and event["state"] == "RUNNING"
    return woken or event["type"] in ("agent_message", "orchestration_end")


def _timed_out(awaited: AwaitMessages, waited_s: float) -> MasterAnswer | None:
    """Return the answer of a wait whose own time is over."""
    if awaited.timeout_s is None or awaited.timeout_s > waited_s:
        return None
    return MasterAnswer(f"No message arrived within {awaited.timeout_s:g} s.")


def _answer(answer: MasterAnswer | None) -> Response:
    view = MasterReply(pending=True) if answer is None else MasterReply(text=answer.text, failed=answer.failed)
    return Response(view.model_dump_json(), status_code=202 if view.pending else 200, media_type="application/json")
