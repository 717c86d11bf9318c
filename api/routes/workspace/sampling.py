"""``/v1/agents/{agent_id}/sampling``: a share of the live runs of an agent is judged."""

from fastapi import APIRouter

from nova_workers.contracts.http.sampling import SamplingPut, SamplingView
from nova_workers.domain.judges.rules.asking import check_judge_engine, judge_spec
from nova_workers.domain.sampling.rules import service as rules

from ...auth import RunsCaller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...params import AgentIdPath
from ...state import State

router = APIRouter(prefix="/v1/agents/{agent_id}/sampling", tags=["sampling"], route_class=StrictRoute)


@router.put("", responses=problems(404, 410, body=True))
async def put_sampling(agent_id: AgentIdPath, body: SamplingPut, caller: RunsCaller, state: State) -> SamplingView:
    """Let a share of the live runs of an agent be judged, or change how. Another judge begins a new reference."""
    check_judge_engine(body.judge)
    await state.services.agents.check(caller.tenant_id, judge_spec(body.judge))
    async with state.services.database.transaction() as transaction:
        return await rules.put_sampling(transaction, caller.tenant_id, agent_id, body, created_by=caller.principal)


@router.get("", responses=problems(404, 410))
async def get_sampling(agent_id: AgentIdPath, caller: RunsReader, state: State) -> SamplingView:
    """Get what is judged of an agent, with its scores over the last 30 days."""
    async with state.services.database.connection() as connection:
        return await rules.show_sampling(connection, caller.tenant_id, agent_id)


@router.delete("", status_code=204, responses=problems(404, 410))
async def delete_sampling(agent_id: AgentIdPath, caller: RunsCaller, state: State) -> None:
    """Judge no more live runs of an agent. Its scores stay."""
    async with state.services.database.connection() as connection:
        await rules.delete_sampling(connection, caller.tenant_id, agent_id)
