"""``/v1/waits``, ``/v1/runs/{id}/answers`` and ``/v1/runs/{id}/tool-results``: what runs wait for, and what ends it."""

from typing import Annotated

from fastapi import APIRouter, Query

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import ANSWERABLE, RunAnswer, ToolResults, WaitKind, WaitView
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.waits.sql.records import Wait, list_waits

from ...auth import RunsCaller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdQuery, RunIdPath
from ...state import State
from ...submitting import given_results

router = APIRouter(prefix="/v1", tags=["runs"], route_class=StrictRoute)

KindQuery = Annotated[WaitKind | None, Query(description="Only of this kind; without it, those that a person answers.")]


@router.get("/waits", responses=problems(400, 410, 422), name="list_waits")
async def list_open_waits(
    *,
    caller: RunsReader,
    state: State,
    kind: KindQuery = None,
    agent_id: AgentIdQuery = None,
    paging: PageQuery,
) -> Page[WaitView]:
    """List what runs wait for, newest first: by default questions and calls that need permission."""
    kinds = ANSWERABLE if kind is None else (kind,)
    listing = paging.of(caller.tenant_id, "waits", str, kind, agent_id)
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, agent_id)
        waits = await list_waits(
            connection,
            caller.tenant_id,
            kinds=kinds,
            before=listing.key,
            agent_id=agent_id,
            limit=listing.rows,
        )
    return listing.page([_view(wait) for wait in waits], lambda wait: wait.id)


@router.post("/runs/{run_id}/answers", responses=problems(404, 409, body=True))
async def answer_run(run_id: RunIdPath, body: RunAnswer, caller: RunsCaller, state: State) -> RunView:
    """Answer a waiting run's question, or permit or refuse a call. The same answer may be given again."""
    return await state.services.waiting.answer(caller.tenant_id, run_id, body.wait_id, body)


@router.post("/runs/{run_id}/tool-results", responses=problems(404, 409, body=True))
async def give_tool_results(run_id: RunIdPath, body: ToolResults, caller: RunsCaller, state: State) -> RunView:
    """Give a waiting run the results of calls of its `client_tools`: all that the request has, or none.

    A run goes on when nothing is left to wait for. The same result may be given again.
    """
    results = await given_results(body.results, max_chars=state.services.settings.api.max_message_chars)
    return (await state.services.waiting.give(caller.tenant_id, run_id, results=results)).run


def _view(wait: Wait) -> WaitView:
    return WaitView(
        id=wait.id,
        run_id=wait.run_id,
        thread_id=wait.thread_id,
        agent_id=wait.agent_id,
        tool_call_id=wait.tool_call_id,
        request=wait.request,
        child_run_id=wait.child_run_id,
        due_at=wait.due_at,
        created_at=wait.created_at,
    )
