"""``/v1/orchestrations``: see what trees of agents do, prompt agents, and kill them."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query

from nova_workers.base.vocabulary import HistoryDetail
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.orchestrations import (
    AgentHistory,
    AgentHistoryEntry,
    AgentKill,
    AgentPrompt,
    FileChange,
    OrchestrationMessageView,
    OrchestrationTree,
    OrchestrationView,
)
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.orchestrations.rules.file_changes import list_file_changes
from nova_workers.domain.orchestrations.rules.finding import pick_agent
from nova_workers.domain.orchestrations.rules.history import load_history, selected
from nova_workers.domain.orchestrations.sql import trees as ledger
from nova_workers.domain.orchestrations.sql.agents import agents_of

from ...auth import RunsCaller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdQuery, Flag, OrchestrationIdPath
from ...repeats import RepeatableRequest
from ...state import State

router = APIRouter(prefix="/v1/orchestrations", tags=["orchestrations"], route_class=StrictRoute)

_ONE_AGENT = "An agent's id, or a part of it that no other agent's id has."
TreeAgentPath = Annotated[str, Path(description=_ONE_AGENT, max_length=80)]
TreeAgentQuery = Annotated[str | None, Query(description=f"Only those of one agent: {_ONE_AGENT}", max_length=80)]
DetailQuery = Annotated[HistoryDetail, Query(description="How much of it.")]
OpenQuery = Annotated[Flag | None, Query(description="True: only open ones. False: only those that have ended.")]


@router.get("", responses=problems(400, 410, 422))
async def list_orchestrations(
    *,
    caller: RunsReader,
    state: State,
    open: OpenQuery = None,
    agent_id: AgentIdQuery = None,
    paging: PageQuery,
) -> Page[OrchestrationView]:
    """List orchestrations, newest first."""
    listing = paging.of(caller.tenant_id, "orchestrations", str, open, agent_id)
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, agent_id)
        rows = await ledger.list_orchestrations(
            connection,
            caller.tenant_id,
            open=open,
            agent_id=agent_id,
            before=listing.key,
            limit=listing.rows,
        )
    return listing.page(rows, lambda view: view.id)


@router.get("/{orchestration_id}", responses=problems(404))
async def get_orchestration(
    orchestration_id: OrchestrationIdPath, caller: RunsReader, state: State
) -> OrchestrationView:
    """Get an orchestration: state, result, what it has used, its limits, and which agents wait for which."""
    async with state.services.database.connection() as connection:
        return await ledger.get_orchestration(connection, caller.tenant_id, orchestration_id)


@router.get("/{orchestration_id}/tree", responses=problems(404))
async def get_orchestration_tree(
    orchestration_id: OrchestrationIdPath, caller: RunsReader, state: State
) -> OrchestrationTree:
    """Get all agents of an orchestration with state, model, usage, progress, and what they wait for."""
    async with state.services.database.connection() as connection:
        return await ledger.get_tree(connection, caller.tenant_id, orchestration_id)


@router.get("/{orchestration_id}/messages", responses=problems(400, 404, 422))
async def list_orchestration_messages(
    orchestration_id: OrchestrationIdPath,
    caller: RunsReader,
    state: State,
    paging: PageQuery,
) -> Page[OrchestrationMessageView]:
    """List the messages between the agents of an orchestration, oldest first."""
    listing = paging.of(caller.tenant_id, "orchestration_messages", str, orchestration_id)
    async with state.services.database.connection() as connection:
        await ledger.tree_head(connection, caller.tenant_id, orchestration_id)
        rows = await ledger.list_messages(
            connection,
            caller.tenant_id,
            orchestration_id,
            after=listing.key or "",
            limit=listing.rows,
        )
    return listing.page(rows, lambda message: message.id)


@router.get("/{orchestration_id}/changes", responses=problems(400, 404, 422))
async def list_orchestration_changes(
    *,
    orchestration_id: OrchestrationIdPath,
    caller: RunsReader,
    state: State,
    agent: TreeAgentQuery = None,
    paging: PageQuery,
) -> Page[FileChange]:
    """List the files that agents changed with `Write` and `Edit`, oldest change first, each with why it was made."""
    async with state.services.database.connection() as connection:
        await ledger.tree_head(connection, caller.tenant_id, orchestration_id)
        agent_id = None
        if agent is not None:
            agents = await agents_of(connection, caller.tenant_id, orchestration_id)
            agent_id = pick_agent(agents, agent, what="agent").id
        listing = paging.of_pairs(caller.tenant_id, "orchestration_changes", str, str, orchestration_id, agent_id)
        rows = await list_file_changes(
            connection,
            caller.tenant_id,
            orchestration_id,
            agent_id=agent_id,
            after=None if listing.key is None else (datetime.fromisoformat(listing.key[0]), listing.key[1]),
            limit=listing.rows,
        )
    return listing.page(rows, lambda change: (change.at.isoformat(), change.id))


@router.get("/{orchestration_id}/agents/{agent}/history", responses=problems(404, 422))
async def get_orchestration_agent_history(
    orchestration_id: OrchestrationIdPath,
    agent: TreeAgentPath,
    caller: RunsReader,
    state: State,
    detail_level: DetailQuery = "summary",
) -> AgentHistory:
    """Get what an agent said and did: its texts and calls, or with `full` also thoughts, parameters and results."""
    async with state.services.database.connection() as connection:
        await ledger.tree_head(connection, caller.tenant_id, orchestration_id)
        agents = await agents_of(connection, caller.tenant_id, orchestration_id)
        found = pick_agent(agents, agent, what="agent")
        entries = await load_history(connection, caller.tenant_id, found.thread_id)
    shown = [AgentHistoryEntry(**asdict(entry)) for entry in selected(entries, detail_level)]
    return AgentHistory(agent_id=found.id, entries=shown)


@router.post("/{orchestration_id}/kill", responses=problems(404, body=True))
async def kill_orchestration(
    orchestration_id: OrchestrationIdPath, body: AgentKill, caller: RunsCaller, state: State
) -> OrchestrationView:
    """Kill an agent and all below it, or the whole tree. Partial output is kept; killing twice changes nothing."""
    _, view = await state.services.orchestrations.kill(caller.tenant_id, orchestration_id, body.agent_id, body.reason)
    return view


@router.post("/{orchestration_id}/agents/{agent}/prompt", responses=problems(404, 409, body=True))
async def prompt_orchestration_agent(
    *,
    orchestration_id: OrchestrationIdPath,
    agent: TreeAgentPath,
    body: AgentPrompt,
    caller: RunsCaller,
    state: State,
    repeats: RepeatableRequest,
) -> OrchestrationView:
    """Send an agent a message: it ends its `wait_for_message`, and restarts a master that has ended."""
    view, is_replay = await state.services.orchestrations.prompt(
        caller.tenant_id, orchestration_id, agent, body.text, request=repeats.bound_to(body)
    )
    repeats.mark(is_replay)
    if view is not None:
        return view
    async with state.services.database.connection() as connection:
        return await ledger.get_orchestration(connection, caller.tenant_id, orchestration_id)
