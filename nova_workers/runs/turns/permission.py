"""Builds the tool policy of a run."""

from collections.abc import Iterable

from nova_workers.config import ToolSettings
from nova_workers.contracts.engine import StepRecord
from nova_workers.contracts.runs import Claim
from nova_workers.tools import CommandPolicy, ModeRules, ToolPolicy

__all__ = ["tool_policy"]


def tool_policy(claim: Claim, settings: ToolSettings, journal: Iterable[StepRecord]) -> ToolPolicy:
    """Return the policy from the agent's permissions, the operator's rules and the run's earlier calls."""
    permissions, asked, mode = claim.agent.permissions, settings.ask_commands, None
    if claim.place is not None:
        allowed = (*permissions.allow_commands, *claim.place.whitelist)
        permissions = permissions.model_copy(update={"allow_commands": allowed})
        asked = (*asked, *claim.place.blacklist)
        mode = ModeRules(claim.place.permission_mode)
    commands = CommandPolicy(permissions, deny=settings.deny_commands, ask=asked)
    policy = ToolPolicy(claim.agent.trust, commands, native_tools_only=claim.agent.native_tools, mode=mode)
    policy.remember(call for step in journal for call in step.tool_calls)
    return policy
