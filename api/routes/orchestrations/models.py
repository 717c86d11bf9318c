"""``/v1/orchestrations/models``: what orchestrations know about models."""

from fastapi import APIRouter

from api.auth import AgentsCaller
from api.openapi import problems
from api.state import State
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.orchestration_config import OrchestrationModelView

__all__ = ["router"]

router = APIRouter(prefix="/v1/orchestrations/models", tags=["orchestrations"])


@router.get("", responses=problems(422))
async def list_orchestration_models(caller: AgentsCaller, state: State) -> Page[OrchestrationModelView]:
    """List the models of the configuration, with how good each is for what. There are few: one page holds all."""
    services = state.services
    models = await services.model_catalog.describe(caller.tenant_id, services.orchestration_configs)
    return Page(items=models)
