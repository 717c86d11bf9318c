"""``/v1/agents``: configuration of agents, kept in versions."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from api.auth import AgentsCaller
from api.json_body import StrictRoute
from api.openapi import problems
from api.pagination import Cursor, Limit, Pager
from api.params import AgentIdPath
from api.state import State
from nova_workers.contracts.wire import AgentCreate, AgentReplace, AgentView, Page
from nova_workers.ledger import agents as ledger

__all__ = ["router"]

router = APIRouter(prefix="/v1/agents", tags=["agents"], route_class=StrictRoute)


class AgentRollback(BaseModel):
    """Which version to make the newest again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = Field(ge=1, le=2**31 - 1)


@router.post("", status_code=201, responses=problems(409, body=True))
async def create_agent(body: AgentCreate, caller: AgentsCaller, state: State) -> AgentView:
    """Make an agent."""
    state.services.capabilities.validate(body)
    async with state.services.database.connection() as connection:
        return await ledger.create_agent(connection, caller.tenant_id, body.id, body)


@router.get("", responses=problems(400, 422))
async def list_agents(caller: AgentsCaller, state: State, cursor: Cursor = None, limit: Limit = 50) -> Page[AgentView]:
    """List agents, by id."""
    pager = Pager(caller.tenant_id, "agents", (str,))
    position = pager.read(cursor)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_agents(
            connection, caller.tenant_id, after=None if position is None else str(position[0]), limit=limit + 1
        )
    return pager.page(rows, limit, lambda agent: [agent.id])


@router.get("/{agent_id}", responses=problems(404, 410))
async def get_agent(agent_id: AgentIdPath, caller: AgentsCaller, state: State) -> AgentView:
    """Get an agent as it stands."""
    async with state.services.database.connection() as connection:
        return await ledger.get_agent(connection, caller.tenant_id, agent_id)


@router.put("/{agent_id}", responses=problems(404, 410, body=True))
async def replace_agent(agent_id: AgentIdPath, body: AgentReplace, caller: AgentsCaller, state: State) -> AgentView:
    """Give an agent a new configuration, as its next version. An equal one changes nothing."""
    state.services.capabilities.validate(body)
    async with state.services.database.connection() as connection:
        return await ledger.replace_agent(connection, caller.tenant_id, agent_id, body)


@router.delete("/{agent_id}", status_code=204, responses=problems(404, 410))
async def delete_agent(agent_id: AgentIdPath, caller: AgentsCaller, state: State) -> None:
    """Delete an agent. Its threads take no new runs; what they hold stays readable."""
    async with state.services.database.connection() as connection:
        await ledger.delete_agent(connection, caller.tenant_id, agent_id)


@router.get("/{agent_id}/versions", responses=problems(400, 404, 410, 422))
async def list_agent_versions(
    agent_id: AgentIdPath, caller: AgentsCaller, state: State, cursor: Cursor = None, limit: Limit = 50
) -> Page[AgentView]:
    """List the versions of an agent, newest first."""
    pager = Pager(caller.tenant_id, "agent_versions", (int,), (agent_id,))
    position = pager.read(cursor)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_versions(
            connection,
            caller.tenant_id,
            agent_id,
            before=None if position is None else int(position[0]),
            limit=limit + 1,
        )
    return pager.page(rows, limit, lambda agent: [agent.version])


@router.post("/{agent_id}/rollback", responses=problems(404, 410, body=True))
async def rollback_agent(agent_id: AgentIdPath, body: AgentRollback, caller: AgentsCaller, state: State) -> AgentView:
    """Make an earlier version's configuration the newest again."""
    async with state.services.database.connection() as connection:
        return await ledger.rollback_agent(connection, caller.tenant_id, agent_id, body.version)
