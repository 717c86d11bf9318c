"""``/v1/orchestrations/models``: what orchestrations know about models."""

from fastapi import APIRouter

from nova_workers.base.errors import NotFound
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.orchestration_config import JudgementView, OrchestrationModelView
from nova_workers.domain.orchestrations.sql.judgements import get_judgement

from ...auth import AgentsReader
from ...openapi import problems
from ...state import State

router = APIRouter(prefix="/v1/orchestrations/models", tags=["orchestrations"])


@router.get("", responses=problems(422))
async def list_orchestration_models(caller: AgentsReader, state: State) -> Page[OrchestrationModelView]:
    """List the models of the configuration, with how good each is for what. There are few: one page holds all."""
    services = state.services
    models = await services.model_catalog.describe(caller.tenant_id, services.orchestration_configs)
    return Page(items=models)


@router.get("/judgement", responses=problems(404))
async def get_model_judgement(caller: AgentsReader, state: State) -> JudgementView:
    """Get what the judge of models (`judge_model` of the configuration) was asked last."""
    async with state.services.database.connection() as connection:
        judgement = await get_judgement(connection, caller.tenant_id)
    if judgement is None:
        raise NotFound(
            "No model was asked about models yet. Set `defaults.judge_model` in the configuration of orchestrations.",
            kind="judgement",
            id=None,
        )
    return judgement
