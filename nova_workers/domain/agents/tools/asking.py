"""The `agents` capability: lists the other agents, and asks them."""

from typing import Annotated, Any

from pydantic import Field

from nova_workers.contracts.http.wire import AgentView
from nova_workers.contracts.waits import MAX_WAIT_S, AskAgent
from nova_workers.domain.agents.sql.records import list_agents
from nova_workers.domain.capabilities.rules.delegation import ASK_AGENT, AgentsConfig, check_delegation
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.ledger.database import Database

_MAX_LISTED = 200


class _List(ToolInput):
    pass


class _Ask(ToolInput):
    agent_id: Annotated[str, Field(min_length=1, max_length=64, description="As list_agents gives it.")]
    message: Annotated[
        str,
        Field(min_length=1, max_length=200_000, description="The task or question, with all that the agent must know."),
    ]
    timeout_s: Annotated[float | None, Field(gt=0, le=MAX_WAIT_S, description="Seconds to wait at most.")] = None


class _AgentTools:
    def __init__(self, database: Database) -> None:
        self._database = database

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="list_agents",
                description="See which other agents there are, what each is for and what it is responsible for.",
                input=_List,
                run=self._list,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name=ASK_AGENT,
                description=(
                    "Give another agent a task or a question and wait for its answer. It works in a conversation of "
                    "its own and knows nothing of this one. Calls made together run at the same time."
                ),
                input=_Ask,
                run=self._ask,
                # It has no effect before the run waits, so it may be repeated after a crash.
                idempotent=True,
            ),
        )

    async def _list(self, context: CapabilityContext, _: _List) -> str:
        async with self._database.connection() as connection:
            agents = await list_agents(connection, context.tenant_id, after=None, limit=_MAX_LISTED)
        config = _config(context)
        lines = [_line(agent) for agent in agents if agent.id != context.agent_id and config.covers(agent.id)]
        return "\n".join(lines) or "There are no other agents."

    async def _ask(self, context: CapabilityContext, given: _Ask) -> AskAgent:
        await check_delegation(self._database, context, _config(context), given.agent_id, field="agent_id")
        return AskAgent(agent_id=given.agent_id, message=given.message, timeout_s=given.timeout_s)


def _config(context: CapabilityContext) -> AgentsConfig:
    assert isinstance(context.config, AgentsConfig)  # noqa: S101 - narrows the type; the registry parses it as this class
    return context.config


def _line(agent: AgentView) -> str:
    duties = ", ".join(duty.title for duty in agent.spec.responsibilities)
    described = agent.spec.description or "no description"
    return f"{agent.id} ({agent.spec.name}): {described}" + (f" Responsible for: {duties}." if duties else "")


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    return ToolCapability(
        "agents",
        "Shows the other agents and asks them; their answers come back to the agent that asked.",
        _AgentTools(parts.database).declare(),
        config=AgentsConfig,
    )
