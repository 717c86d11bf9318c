"""Whether a child may take another task: only the one that the request names, and only within what that grants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nova_workers.base.errors import AgentSpawnError, NotFound
from nova_workers.base.vocabulary import ENDED_AGENTS
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.mcp.servers import MCP_CAPABILITY
from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.domain.orchestrations.rules.finding import pick_agent
from nova_workers.domain.orchestrations.rules.spawning.preparing import PreparedSpawn
from nova_workers.domain.orchestrations.sql import agents as ledger
from nova_workers.domain.orchestrations.sql import messages
from nova_workers.ledger.database import Connection

_FRESH = "Leave out `reuse` for a fresh child."


async def find_reusable(
    connection: Connection,
    agents: Sequence[AgentDescriptor],
    parent: AgentDescriptor,
    prepared: PreparedSpawn,
    part: str,
) -> AgentDescriptor:
    """Return the child that a request asks to reuse: one that has ended, or that waits for messages only.

    Args:
        connection: In a transaction that locks the tree.
        agents: All agents of the tree.
        parent: The agent that asks.
        prepared: The request.
        part: The child's id, or a unique part of it.

    Raises:
        AgentSpawnError: There is no such child, it works, or it does not fit the request.
    """
    try:
        child = pick_agent([agent for agent in agents if agent.parent_id == parent.id], part, what="child")
    except NotFound as error:
        raise AgentSpawnError(f"reuse: {error.message} {_FRESH}") from error
    wrong = list(misfits(child, await ledger.spec_of(connection, child), prepared))
    if wrong:
        raise AgentSpawnError(f"reuse: child {child.id!r} does not fit: {'; '.join(wrong)}. {_FRESH}")
    if child.state not in ENDED_AGENTS:
        idle = await messages.idle_agents(connection, [child.id])
        if not idle or await messages.pending(connection, [child.id]):
            raise AgentSpawnError(
                f"reuse: child {child.id!r} is {child.state} and has work. Wait for its result with wait_for_message, "
                f"or send it a message with send_child_prompt. {_FRESH}"
            )
    return child


def misfits(child: AgentDescriptor, held: AgentSpec, prepared: PreparedSpawn) -> Iterator[str]:
    """Return why a child may not take a request. Pure.

    Args:
        held: Its configuration.
        prepared: The request, with what a fresh child would hold: the reused one must not hold more.
    """
    request, fresh = prepared.request, prepared.spec
    if "REVIEWER" in (child.role, request.role):
        yield "reviewers are always fresh"
        return
    if child.role != request.role:
        yield f"its role is {child.role}"
    if request.name not in (None, child.name):
        yield f"its name is {child.name!r}"
    if request.cwd is not None and prepared.held.cwd != child.cwd:
        yield f"its working directory is {child.cwd!r}"
    if request.complexity is not None:
        yield f"complexity chooses the model of a fresh child, and its model is {child.model!r}"
    elif request.model is not None and child.model != fresh.model:
        yield f"its model is {child.model!r}"
    if request.output_schema != held.output_schema:
        yield "its result has no `output_schema`" if held.output_schema is None else "its result has another form"
    if prepared.held.permission_mode == "PLAN" and child.permission_mode != "PLAN":
        yield f"its permission mode is {child.permission_mode}, and you may only read"
    if (held.trust, held.directories, held.permissions) != (fresh.trust, fresh.directories, fresh.permissions):
        yield "the agent of this orchestration has other bounds since it was spawned"
    yield from _tools(held, prepared)
    yield from _plugins(child, prepared)


def _tools(held: AgentSpec, prepared: PreparedSpawn) -> Iterator[str]:
    fresh, named = prepared.spec, prepared.request.tools is not None
    more = sorted({*(held.native_tools or ())} - {*(fresh.native_tools or ())})
    less = sorted({*(fresh.native_tools or ())} - {*(held.native_tools or ())})
    for name in sorted({*held.capabilities, *fresh.capabilities} - {MCP_CAPABILITY}):
        had, gets = held.capabilities.get(name), fresh.capabilities.get(name)
        if had is None:
            less.append(name)
        elif gets is None or had.config != gets.config:
            more.append(name)
        elif had.tools != gets.tools:
            more += [name] if had.tools is None else sorted({*had.tools} - {*(gets.tools or had.tools)})
            less += [name] if gets.tools is None else sorted({*gets.tools} - {*(had.tools or gets.tools)})
    if more:
        yield f"it holds {', '.join(more)}, which this request does not grant; name them in `tools`"
    if less and named:
        yield f"it does not hold {', '.join(less)}"


def _plugins(child: AgentDescriptor, prepared: PreparedSpawn) -> Iterator[str]:
    more = sorted({*child.plugins} - {*prepared.held.servers})
    if more:
        yield f"it has the plugins {', '.join(more)}, which this request does not give; name them in `mcp_servers`"
    less = sorted({*(prepared.request.mcp_servers or ())} - {*child.plugins})
    if less:
        yield f"it does not have the plugins {', '.join(less)}"
