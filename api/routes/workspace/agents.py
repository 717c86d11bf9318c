"""``/v1/agents``: configuration of agents, kept in versions."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from nova_workers.base.errors import InvalidInput
from nova_workers.bootstrap.api import ApiServices
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.agents import (
    MAX_VERSION,
    AgentPromptRequest,
    AgentPromptView,
    AgentRename,
    AgentRenameView,
    AgentRollback,
    AgentToolServersView,
    AgentWarning,
)
from nova_workers.contracts.http.wire import AgentCreate, AgentPatch, AgentReplace, AgentView
from nova_workers.domain.agents.rules.lints import lint_spec, secrets_named
from nova_workers.domain.agents.rules.service import PERSON
from nova_workers.domain.agents.sql import records as ledger
from nova_workers.domain.agents.sql.moves import threads_left
from nova_workers.domain.secrets.sql import fetch_secrets

from ...auth import AgentsCaller, AgentsReader, Caller
from ...entity_tags import IfMatch, expected_version, tag
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdPath
from ...state import CAPABILITIES, State

router = APIRouter(prefix="/v1/agents", tags=["agents"], route_class=StrictRoute)

_MOVE_PATIENCE_S = 2.0
"""How long a rename waits for the agent's rows: those of some thousand runs move meanwhile."""

Version = Annotated[int, Path(description="A version's number.", ge=1, le=MAX_VERSION)]


@router.post("", status_code=201, responses=problems(409, body=True), dependencies=[CAPABILITIES])
async def create_agent(body: AgentCreate, caller: AgentsCaller, state: State, response: Response) -> AgentView:
    """Create an agent."""
    agent = await state.services.agents.create(
        caller.tenant_id,
        body.id,
        body,
        actor=PERSON,
        rights=caller.author,
    )
    return _tagged(agent, response)


@router.get("", responses=problems(400, 422))
async def list_agents(caller: AgentsReader, state: State, paging: PageQuery) -> Page[AgentView]:
    """List agents, by id."""
    listing = paging.of(caller.tenant_id, "agents", str)
    rows = await state.services.agents.list(caller.tenant_id, after=listing.key, limit=listing.rows)
    return listing.page(rows, lambda agent: agent.id)


@router.get("/{agent_id}", responses=problems(404, 410))
async def get_agent(agent_id: AgentIdPath, caller: AgentsReader, state: State, response: Response) -> AgentView:
    """Get an agent."""
    return _tagged(await state.services.agents.get(caller.tenant_id, agent_id), response)


@router.get("/{agent_id}/tool-servers", responses=problems(404, 410), name="list_agent_tool_servers")
async def get_tool_servers(agent_id: AgentIdPath, caller: AgentsReader, state: State) -> AgentToolServersView:
    """Get the MCP servers that were away in the newest turn of an agent, and why."""
    agent = await state.services.agents.get(caller.tenant_id, agent_id)
    return AgentToolServersView(away=await state.services.away_servers.of(caller.tenant_id, agent.id))


@router.put("/{agent_id}", responses=problems(404, 409, 410, 412, body=True), dependencies=[CAPABILITIES])
async def replace_agent(
    agent_id: AgentIdPath,
    body: AgentReplace,
    caller: AgentsCaller,
    state: State,
    *,
    response: Response,
    if_match: IfMatch = None,
) -> AgentView:
    """Replace an agent's configuration by a new version. An equal one changes nothing."""
    agent = await state.services.agents.replace(
        caller.tenant_id,
        agent_id,
        body,
        actor=PERSON,
        rights=caller.author,
        expected=expected_version(if_match),
    )
    return _tagged(agent, response)


@router.patch(
    "/{agent_id}", responses=problems(404, 409, 410, 412, body=True), dependencies=[CAPABILITIES], name="patch_agent"
)
async def change_agent(
    agent_id: AgentIdPath,
    body: AgentPatch,
    caller: AgentsCaller,
    state: State,
    *,
    response: Response,
    if_match: IfMatch = None,
) -> AgentView:
    """Change fields of an agent, each as a whole, by a new version. Omitted fields are kept."""
    agent = await state.services.agents.patch(
        caller.tenant_id,
        agent_id,
        body,
        actor=PERSON,
        rights=caller.author,
        expected=expected_version(if_match),
    )
    return _tagged(agent, response)


@router.delete("/{agent_id}", status_code=204, responses=problems(404, 410))
async def delete_agent(agent_id: AgentIdPath, caller: AgentsCaller, state: State) -> None:
    """Delete an agent. Its threads accept no new runs, and stay readable."""
    await state.services.agents.delete(caller.tenant_id, agent_id)


@router.get("/{agent_id}/versions", responses=problems(400, 404, 410, 422))
async def list_agent_versions(
    agent_id: AgentIdPath, caller: AgentsReader, state: State, paging: PageQuery
) -> Page[AgentView]:
    """List the versions of an agent, newest first, with their authors."""
    listing = paging.of(caller.tenant_id, "agent_versions", int, agent_id)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_versions(
            connection,
            caller.tenant_id,
            agent_id,
            before=listing.key,
            limit=listing.rows,
        )
    return listing.page(rows, lambda agent: agent.version)


@router.post(
    "/{agent_id}/versions", status_code=201, responses=problems(404, 410, body=True), dependencies=[CAPABILITIES]
)
async def save_agent_version(agent_id: AgentIdPath, body: AgentPatch, caller: AgentsCaller, state: State) -> AgentView:
    """Save a version that is not current, for a rollout: the current one with the fields that the body has."""
    return await state.services.agents.save_version(
        caller.tenant_id, agent_id, body, actor=PERSON, rights=caller.author
    )


@router.get("/{agent_id}/versions/{version}", responses=problems(404, 410, 422))
async def get_agent_version(agent_id: AgentIdPath, version: Version, caller: AgentsReader, state: State) -> AgentView:
    """Get an earlier version of an agent."""
    async with state.services.database.connection() as connection:
        return await ledger.get_version(connection, caller.tenant_id, agent_id, version)


@router.post("/{agent_id}/rollback", responses=problems(404, 409, 410, body=True), dependencies=[CAPABILITIES])
async def rollback_agent(
    agent_id: AgentIdPath, body: AgentRollback, caller: AgentsCaller, state: State, response: Response
) -> AgentView:
    """Make an earlier version's configuration the newest again."""
    agent = await state.services.agents.rollback(
        caller.tenant_id,
        agent_id,
        body.version,
        actor=PERSON,
        rights=caller.author,
    )
    return _tagged(agent, response)


@router.post("/{agent_id}/rename", responses=problems(404, 409, 410, 412, body=True), dependencies=[CAPABILITIES])
async def rename_agent(
    agent_id: AgentIdPath, body: AgentRename, caller: AgentsCaller, state: State, *, if_match: IfMatch = None
) -> AgentRenameView:
    """Give an agent another id, with all that it has. Repeating it returns the state."""
    services = state.services
    rename = await services.agents.begin_rename(
        caller.tenant_id,
        agent_id,
        body.to,
        actor=PERSON,
        rights=caller.author,
        expected=expected_version(if_match),
    )
    done = not rename.moving or await services.agent_moves.start(rename, patience_s=_MOVE_PATIENCE_S)
    async with services.database.connection() as connection:
        left = await threads_left(connection, rename)
    channels = services.settings.delivery.channels
    return AgentRenameView(
        id=rename.to_id,
        former_id=agent_id,
        state="done" if done else "moving",
        threads_left=left,
        settings=["NOVA_DELIVERY__CHANNELS"] if agent_id in channels and body.to not in channels else [],
    )


@router.post(
    "/{agent_id}/prompt", responses=problems(404, 410, body=True), dependencies=[CAPABILITIES], name="show_agent_prompt"
)
async def show_prompt(
    agent_id: AgentIdPath, body: AgentPromptRequest, caller: AgentsCaller, state: State
) -> AgentPromptView:
    """Show the system prompt of an agent, or of a configuration that is not saved, with its size. Changes nothing."""
    services = state.services
    if body.spec is None:
        spec = (await services.agents.get(caller.tenant_id, agent_id)).spec
    else:
        spec = body.spec
        await services.agents.check(caller.tenant_id, spec)
    shown = await services.prompt_previews.preview(
        caller.tenant_id,
        agent_id,
        spec,
        channel=body.channel,
        may_read_workspace=caller.may("workspace"),
    )
    return shown.model_copy(update={"warnings": await _warnings(services, caller, spec)})


async def _warnings(services: ApiServices, caller: Caller, spec: AgentSpec) -> list[AgentWarning]:
    named = set[str]().union(*secrets_named(spec).values())
    secrets = None
    if named and caller.may("secrets"):
        async with services.database.connection() as connection:
            secrets = [row.name for row in await fetch_secrets(connection, caller.tenant_id, named)]
    try:
        models = await services.model_catalog.describe(caller.tenant_id, services.orchestration_configs)
    except InvalidInput:
        # The configuration of orchestrations has a page of its own, which says what is wrong with it.
        models = []
    return lint_spec(
        spec,
        default_engine=services.settings.default_engine,
        models=models,
        secrets=secrets,
    )


def _tagged(agent: AgentView, response: Response) -> AgentView:
    tag(response, agent.version)
    return agent
