"""``/v1/orchestrations/config``: the configuration of orchestrations, kept in versions."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.orchestration_config import (
    OrchestrationConfigInfo,
    OrchestrationConfigPut,
    OrchestrationConfigView,
)
from nova_workers.domain.agents.rules.service import PERSON
from nova_workers.domain.orchestrations.rules.config.service import ConfigAuthor
from nova_workers.domain.orchestrations.sql import configs as ledger

from ...auth import AgentsCaller, AgentsReader
from ...entity_tags import IfMatch, expected_version, tag
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...state import CAPABILITIES, State

router = APIRouter(prefix="/v1/orchestrations/config", tags=["orchestrations"], route_class=StrictRoute)

Version = Annotated[int, Path(description="A version's number.", ge=1, le=2**31 - 1)]


@router.get("", responses=problems())
async def get_orchestration_config(caller: AgentsReader, state: State, response: Response) -> OrchestrationConfigView:
    """Get the configuration as it stands. Version 0 means that the defaults apply."""
    view = await state.services.orchestration_configs.get(caller.tenant_id)
    tag(response, view.version)
    return view


@router.put("", responses=problems(412, body=True), dependencies=[CAPABILITIES])
async def put_orchestration_config(
    body: OrchestrationConfigPut,
    caller: AgentsCaller,
    state: State,
    response: Response,
    if_match: IfMatch = None,
) -> OrchestrationConfigView:
    """Replace the configuration, as its next version. With an error nothing is stored, and `errors` has each."""
    view = await state.services.orchestration_configs.put(
        caller.tenant_id,
        body,
        actor=PERSON,
        author=ConfigAuthor(caller.author, state.services.capabilities),
        expected=expected_version(if_match, least=0),
    )
    tag(response, view.version)
    return view


@router.get("/versions", responses=problems(400, 422))
async def list_orchestration_config_versions(
    caller: AgentsReader, state: State, paging: PageQuery
) -> Page[OrchestrationConfigInfo]:
    """List the versions of the configuration, newest first, without their texts."""
    listing = paging.of(caller.tenant_id, "orchestration_configs", int)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_config_versions(
            connection,
            caller.tenant_id,
            before=listing.key,
            limit=listing.rows,
        )
    return listing.page(rows, lambda row: row.version)


@router.get("/versions/{version}", responses=problems(404, 422))
async def get_orchestration_config_version(
    version: Version, caller: AgentsReader, state: State
) -> OrchestrationConfigView:
    """Get what the configuration was."""
    async with state.services.database.connection() as connection:
        return await ledger.get_config_version(connection, caller.tenant_id, version)
