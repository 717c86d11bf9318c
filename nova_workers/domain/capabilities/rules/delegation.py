"""The agents that an agent may ask: with `ask_agent`, or instead of a person who does not answer."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import ConfigDict, Field

from nova_workers.base.errors import InvalidInput, ToolFailure
from nova_workers.base.field_docs import DescribedFields
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.contracts.agents import AgentId, ApprovalRule
from nova_workers.contracts.authors.rights import STEERS, authored
from nova_workers.contracts.waits import MAX_DELEGATION_DEPTH
from nova_workers.domain.agents.sql.records import get_agent
from nova_workers.domain.capabilities.rules.seam import CapabilityContext
from nova_workers.ledger.database import Database

ASK_AGENT = "ask_agent"
"""The tool whose grant lets an agent ask others."""

_CAPABILITY = "agents"


@authored(
    may_ask=STEERS,
)
class AgentsConfig(DescribedFields, TrueNumbers):
    """Configuration of the capability `agents`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    may_ask: Annotated[tuple[AgentId, ...] | None, Field(max_length=200)] = None
    """The agents that it may see and ask; null is all."""

    def covers(self, agent_id: str) -> bool:
        """Return whether it may see and ask an agent."""
        return self.may_ask is None or agent_id in self.may_ask

    def includes(self, other: AgentsConfig) -> bool:
        """Return whether it covers all agents that another one covers."""
        return self.may_ask is None or (other.may_ask is not None and set(other.may_ask) <= set(self.may_ask))


def granted_delegation(context: CapabilityContext, field: str) -> AgentsConfig:
    """Return the grant of `agents` of a run's agent, for tools of other capabilities.

    Args:
        context: The run.
        field: The argument that names the agent to ask, for the error.

    Raises:
        InvalidInput: There is no such grant, or one without `ask_agent`, or its calls need a person's approval.
    """
    grant = context.agent.capabilities.get(_CAPABILITY)
    if grant is None or (grant.tools is not None and ASK_AGENT not in grant.tools):
        raise InvalidInput(f"{field}: you may not ask other agents. Leave it out.", field=field)
    rule = _rule_on_asking(context.agent.permissions.approvals)
    if rule is not None and rule.decision != "always":
        # Such a call would need approval by the person, who has not answered.
        raise InvalidInput(f"{field}: your calls of {ASK_AGENT} need permission. Leave it out.", field=field)
    return AgentsConfig.model_validate(grant.config)


def may_instruct(context: CapabilityContext) -> tuple[AgentId, ...] | None:
    """Return the agents to which the agent of a run may give work without a person; None is all."""
    try:
        return granted_delegation(context, "owner_agent_id").may_ask
    except InvalidInput:
        return ()


def _rule_on_asking(rules: Iterable[ApprovalRule]) -> ApprovalRule | None:
    """Return a rule about `ask_agent`, if any, whichever calls it is for."""
    on_asking = (rule for rule in rules if fnmatchcase(ASK_AGENT, rule.tool))
    return next((rule for rule in on_asking if not _is_limited(rule) or rule.decision != "always"), None)


def _is_limited(rule: ApprovalRule) -> bool:
    return rule.pattern is not None or rule.arguments is not None


async def check_delegation(
    database: Database, context: CapabilityContext, config: AgentsConfig, agent_id: str, *, field: str
) -> None:
    """Check that the agent of a run may ask another one.

    Args:
        database: The ledger.
        context: The run.
        config: Its grant.
        agent_id: The agent to ask.
        field: The argument that names it, for the error.

    Raises:
        InvalidInput: It is the agent itself, or not covered by the grant.
        ToolFailure: The chain of agents that wait for each other is too long.
        NotFound: There is no such agent.
    """
    if agent_id == context.agent_id:
        raise InvalidInput(f"{field}: you cannot ask yourself.", field=field)
    if context.depth + 1 >= MAX_DELEGATION_DEPTH:
        raise ToolFailure(
            f"You were asked by an agent that was asked itself: at most {MAX_DELEGATION_DEPTH} agents stand one "
            "behind the other. Do it yourself, or say in your answer who should be asked."
        )
    if not config.covers(agent_id):
        raise InvalidInput(f"{field}: you may not ask {agent_id!r}.", field=field)
    async with database.connection() as connection:
        await get_agent(connection, context.tenant_id, agent_id)
