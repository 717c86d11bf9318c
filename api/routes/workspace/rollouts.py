"""``/v1/agents/{agent_id}/rollout``: a version of an agent takes over its conversations in steps."""

from fastapi import APIRouter

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.rollouts import (
    RolloutAdvance,
    RolloutHistory,
    RolloutReport,
    RolloutStart,
    RolloutStop,
    RolloutView,
)
from nova_workers.domain.agents.sql.records import get_agent
from nova_workers.domain.rollouts.rules import reports
from nova_workers.domain.rollouts.rules import service as rules
from nova_workers.domain.rollouts.sql import records as ledger

from ...auth import AgentsCaller, AgentsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdPath, RolloutIdPath
from ...state import CAPABILITIES, State

router = APIRouter(prefix="/v1/agents/{agent_id}", tags=["rollouts"], route_class=StrictRoute)


@router.post("/rollout", status_code=201, responses=problems(404, 409, 410, body=True), dependencies=[CAPABILITIES])
async def start_rollout(agent_id: AgentIdPath, body: RolloutStart, caller: AgentsCaller, state: State) -> RolloutView:
    """Begin to give the conversations of an agent to another of its versions, in steps."""
    services = state.services
    return await rules.start_rollout(
        services.work,
        services.agents,
        caller.tenant_id,
        agent_id,
        body,
        rights=caller.author,
        default_engine=services.settings.default_engine,
    )


@router.get("/rollout", responses=problems(404, 410))
async def get_rollout(agent_id: AgentIdPath, caller: AgentsReader, state: State) -> RolloutReport:
    """Get the newest rollout of an agent, with the figures of both versions."""
    async with state.services.database.connection() as connection:
        return await reports.report_rollout(connection, caller.tenant_id, agent_id)


@router.get("/rollouts", responses=problems(400, 404, 410, 422))
async def list_rollouts(
    agent_id: AgentIdPath, caller: AgentsReader, state: State, paging: PageQuery
) -> Page[RolloutView]:
    """List the rollouts of an agent, newest first."""
    listing = paging.of(caller.tenant_id, "rollouts", str, agent_id)
    async with state.services.database.connection() as connection:
        await get_agent(connection, caller.tenant_id, agent_id)
        rows = await ledger.list_rollouts(
            connection, caller.tenant_id, agent_id, before=listing.key, limit=listing.rows
        )
    return listing.page(rows, lambda one: one.id)


@router.get("/rollouts/{rollout_id}", responses=problems(404, 410))
async def get_rollout_history(
    agent_id: AgentIdPath, rollout_id: RolloutIdPath, caller: AgentsReader, state: State
) -> RolloutHistory:
    """Get any rollout of an agent, with the figures of both versions in all and over time."""
    now = state.services.clock.now()
    async with state.services.database.connection() as connection:
        return await reports.read_history(connection, caller.tenant_id, agent_id, rollout_id, now=now)


@router.post("/rollout/advance", responses=problems(404, 409, 410, body=True))
async def advance_rollout(
    agent_id: AgentIdPath, body: RolloutAdvance, caller: AgentsCaller, state: State
) -> RolloutView:
    """Begin the next step now. After the last one the candidate becomes the current version."""
    return await rules.advance_rollout(state.services.work, caller.tenant_id, agent_id, body)


@router.post("/rollout/stop", responses=problems(404, 409, 410, body=True))
async def stop_rollout(agent_id: AgentIdPath, body: RolloutStop, caller: AgentsCaller, state: State) -> RolloutView:
    """Stop a rollout. Each thread continues with the current version at its next turn."""
    return await rules.stop_rollout(state.services.work, caller.tenant_id, agent_id, body)
