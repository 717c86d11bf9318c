"""``/v1/runs/{run_id}/feedback`` and ``/v1/feedback``: what people, end users and programs say of runs."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from nova_workers.base.errors import Forbidden, missing
from nova_workers.base.vocabulary import FeedbackSource, Rating
from nova_workers.contracts.bodies import Moment, Page
from nova_workers.contracts.http.feedback import (
    FEEDBACK_NAME_PATTERN,
    FeedbackGive,
    FeedbackReport,
    FeedbackView,
)
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.feedback import rules
from nova_workers.domain.feedback import sql as ledger
from nova_workers.domain.feedback.sql import FeedbackFilter, Giver

from ...auth import FeedbackCaller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdPath, AgentIdQuery, FeedbackIdPath, RunIdPath
from ...state import State

router = APIRouter(prefix="/v1", tags=["feedback"], route_class=StrictRoute)

_REPORTED = timedelta(days=30)

_Name = Annotated[
    Annotated[str, StringConstraints(pattern=FEEDBACK_NAME_PATTERN)] | None, Query(description="Only of this name.")
]
_Version = Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Only on runs of this version of their agent.")]
_Source = Annotated[FeedbackSource | None, Query(description="Only of this source.")]
_Rated = Annotated[Rating | None, Query(description="Only with a score above 0 (`up`), or below (`down`).")]
_Since = Annotated[Moment | None, Query(description="Only what was first given at this time or later.")]
_Until = Annotated[Moment | None, Query(description="Only what was first given before this time.")]


@router.post("/runs/{run_id}/feedback", responses=problems(404, 409, body=True))
async def give_feedback(run_id: RunIdPath, body: FeedbackGive, caller: FeedbackCaller, state: State) -> FeedbackView:
    """Give feedback on a run, or replace what the same key and author gave under the same name."""
    source = rules.source_of(body.source, may_run=caller.may("runs"))
    if source is None:
        raise Forbidden(
            f"A key without the scope 'runs' gives feedback of end users only: {body.source!r} is not permitted.",
            needed="runs",
        )
    return await rules.give_feedback(
        state.services.work, Giver(caller.tenant_id, caller.principal, source), run_id, body
    )


@router.get("/runs/{run_id}/feedback", responses=problems(400, 404, 422))
async def list_run_feedback(
    run_id: RunIdPath, caller: RunsReader, state: State, paging: PageQuery
) -> Page[FeedbackView]:
    """List the feedback on a run, newest first."""
    listing = paging.of(caller.tenant_id, "run feedback", str, run_id)
    async with state.services.database.connection() as connection:
        if not await ledger.has_run(connection, caller.tenant_id, run_id):
            raise missing("run", run_id)
        rows = await ledger.list_feedback_of_run(
            connection, caller.tenant_id, run_id, before=listing.key, limit=listing.rows
        )
    return listing.page(rows, lambda one: one.id)


@router.get("/feedback", responses=problems(400, 410, 422))
async def list_feedback(
    *,
    caller: RunsReader,
    state: State,
    agent_id: AgentIdQuery = None,
    agent_version: _Version = None,
    name: _Name = None,
    source: _Source = None,
    rated: _Rated = None,
    since: _Since = None,
    until: _Until = None,
    paging: PageQuery,
) -> Page[FeedbackView]:
    """List feedback, newest first."""
    which = FeedbackFilter(agent_id, agent_version, name, source, rated, since, until)
    listing = paging.of(caller.tenant_id, "feedback", str, agent_id, agent_version, name, source, rated, since, until)
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, agent_id)
        rows = await ledger.list_feedback(connection, caller.tenant_id, which, before=listing.key, limit=listing.rows)
    return listing.page(rows, lambda one: one.id)


@router.delete("/feedback/{feedback_id}", status_code=204, responses=problems(404))
async def delete_feedback(feedback_id: FeedbackIdPath, caller: FeedbackCaller, state: State) -> None:
    """Delete feedback. A key with the scope `feedback` and without `runs` may delete what it gave itself."""
    of_key = None if caller.may("runs") else caller.principal
    await rules.take_back(state.services.database, caller.tenant_id, feedback_id, of_key=of_key)


@router.get("/agents/{agent_id}/feedback", responses=problems(404, 410, 422))
async def get_agent_feedback(
    agent_id: AgentIdPath, caller: RunsReader, state: State, since: _Since = None
) -> FeedbackReport:
    """Get how the versions of an agent were rated in the last 30 days, or since a time: counts and means by name."""
    begin = since or state.services.clock.now() - _REPORTED
    agent = await state.services.agents.get(caller.tenant_id, agent_id)
    async with state.services.database.connection() as connection:
        figures = await ledger.read_figures(connection, caller.tenant_id, agent.id, since=begin)
    is_cut = sum(each.count for each in figures) >= ledger.COUNTED
    return FeedbackReport(
        agent_id=agent.id, since=begin, counted_within=ledger.COUNTED if is_cut else None, figures=figures
    )
