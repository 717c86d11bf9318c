"""The capability that gives every agent of an orchestration the tools of its role."""

from __future__ import annotations

from pydantic import BaseModel

from nova_workers.base.vocabulary import AgentRole
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.orchestration import RUN_BASH, TASK_COMPLETE, is_peer
from nova_workers.contracts.ports import ShellRunner
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, DeclaredServer, NoConfig, Servers
from nova_workers.domain.orchestrations.rules.actions import AgentActions
from nova_workers.domain.orchestrations.rules.views import AgentViews
from nova_workers.domain.orchestrations.tools.children import child_tools
from nova_workers.domain.orchestrations.tools.conversation import conversation_tools
from nova_workers.domain.orchestrations.tools.experts import expert_tools
from nova_workers.domain.orchestrations.tools.intelligence import intelligence_tools
from nova_workers.domain.orchestrations.tools.lifecycle import lifecycle_tools
from nova_workers.domain.orchestrations.tools.observing import observing_tools
from nova_workers.domain.orchestrations.tools.seam import Declarations
from nova_workers.domain.orchestrations.tools.shell import may_run_commands, shell_tools

CAPABILITY = "orchestrator"
"""Name of the MCP server of these tools."""

_CHILD_ONLY = frozenset({"ask_parent", "report_progress"})
_EXPERT_TOOLS = frozenset({"ask_parent", "report_progress", "task_complete"})


class OrchestrationCapability:
    """Gives every agent of an orchestration the tools of its role. It is never granted.

    A call that is repeated after a crash finds what the first one did, so the tools are idempotent.
    """

    name = CAPABILITY
    description = "Lets agents of an orchestration spawn, ask, prompt and watch other agents."
    config: type[BaseModel] = NoConfig

    def __init__(self, actions: AgentActions, views: AgentViews, shell: ShellRunner) -> None:
        self.tools: Declarations = (
            *conversation_tools(actions),
            *child_tools(actions),
            *expert_tools(actions, views),
            *lifecycle_tools(actions),
            *observing_tools(views),
            *intelligence_tools(views),
            *shell_tools(shell),
        )

    @staticmethod
    def injected(context: CapabilityContext) -> bool:
        """Return whether the run is one of an orchestration's agent. A peer answers once, without tools."""
        place = context.place
        return place is not None and not is_peer(place.role, place.expert_id)

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return the tools of the agent's role."""
        role: AgentRole = "WORKER" if context.place is None else context.place.role
        tools = tuple(
            tool
            for tool in self.tools
            if (may_run_commands(context) if tool.name == RUN_BASH else _has(role, context.agent, tool.name))
        )
        return DeclaredServer(CAPABILITY, tools, context, config)


def _has(role: AgentRole, agent: AgentSpec, tool: str) -> bool:
    if tool == TASK_COMPLETE and agent.output_schema is not None:
        # Its last message is the result, which the engine checks.
        return False
    if role == "EXPERT":
        return tool in _EXPERT_TOOLS
    return role != "MASTER" or tool not in _CHILD_ONLY
