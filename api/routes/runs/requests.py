"""``/v1/runs/{run_id}/steps/{step}/request``: what a model call was asked with."""

from typing import Annotated

from fastapi import APIRouter, Path

from nova_workers.contracts.http.overview.requests import ModelRequestView
from nova_workers.domain.runs.rules.turns.asked import load_request

from ...auth import PromptsCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import RunIdPath
from ...state import State

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=StrictRoute)

_Step = Annotated[int, Path(ge=0, le=1_000_000, description="The step's index, from 0.")]


@router.get("/{run_id}/steps/{step}/request", responses=problems(400, 404, 422), name="get_model_request")
async def get_request(
    run_id: RunIdPath, step: _Step, caller: PromptsCaller, state: State, paging: PageQuery
) -> ModelRequestView:
    """Get what the model was asked with in a step: system prompt, tools, parameters, messages; and its response.

    It is rebuilt from the ledger. Messages come in pages, newest first.
    """
    listing = paging.of(caller.tenant_id, "request", int, run_id, step)
    async with state.services.database.connection() as connection:
        request = await load_request(connection, caller.tenant_id, run_id, step)
    rest = [message for message in request.messages if listing.key is None or message.index < listing.key]
    page = listing.page(rest[: listing.rows], lambda message: message.index)
    return request.model_copy(update={"messages": page.items, "next_cursor": page.next_cursor})
