"""``/v1/attention``: what needs a person."""

from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.contracts.http.overview.attention import AttentionView
from nova_workers.domain.overview.sql.attention import find_attention

from ...auth import AnyCaller
from ...json_body import StrictRoute
from ...openapi import problems
from ...state import State

router = APIRouter(prefix="/v1/attention", tags=["attention"], route_class=StrictRoute)

Newest = Annotated[int, Query(ge=0, le=50, description="Most items of each group; counts are of all.")]


@router.get("", responses=problems(422))
async def get_attention(caller: AnyCaller, state: State, limit: Newest = 5) -> AttentionView:
    """Get what needs a person: of each kind the number and the newest. A kind is null if the key lacks its scope."""
    async with state.services.database.connection() as connection:
        return await find_attention(connection, caller.tenant_id, caller.scopes, limit=limit)
