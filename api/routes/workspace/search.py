"""``/v1/search``: message search."""

from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.contracts.http.history import MAX_HITS, MAX_QUERY_CHARS, Moment, SearchResult
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.search.sql.messages import MessageFilter
from nova_workers.domain.threads.sql.records import read_openings
from nova_workers.ledger.visibility import all_tenants

from ...auth import RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import AgentIdQuery
from ...state import ApiState, State

router = APIRouter(prefix="/v1/search", tags=["search"], route_class=StrictRoute)

_NOT_BLANK = r"^[^\x00]*[^\x00\s][^\x00]*$"


@router.get("", responses=problems(410, 422))
async def search_conversations(
    *,
    caller: RunsReader,
    state: State,
    q: Annotated[
        str,
        Query(min_length=1, max_length=MAX_QUERY_CHARS, pattern=_NOT_BLANK, description="Words, or a question."),
    ],
    agent_id: AgentIdQuery = None,
    since: Annotated[Moment | None, Query(description="Only what was said from this moment on.")] = None,
    until: Annotated[Moment | None, Query(description="Only what was said before this moment.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_HITS, description="Most messages.")] = 10,
) -> SearchResult:
    """Search messages of people and agents, best first. There is no next page: change the query, or give a period."""
    return await found_messages(
        state, MessageFilter(caller.tenant_id, agent_id, since=since, until=until), q, limit=limit
    )


async def found_messages(state: ApiState, which: MessageFilter, query: str, *, limit: int) -> SearchResult:
    """Return the messages of the filter's tenant that match a query best.

    Raises:
        AgentRenamed: The filter's agent has another id now.
        InvalidInput: The period ends before it begins.
    """
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, which.tenant_id, which.agent_id)
    # Policies would keep Postgres from using the index of words: its operator is not known to be free of leaks.
    with all_tenants():
        found = await state.services.history.search(which, query, limit=limit)
    untitled = {hit.thread_id for hit in found.items if hit.thread_title is None}
    if not untitled:
        return found
    async with state.services.database.connection() as connection:
        openings = await read_openings(connection, which.tenant_id, untitled)
    hits = [hit.model_copy(update={"thread_opening": openings.get(hit.thread_id)}) for hit in found.items]
    return found.model_copy(update={"items": hits})
