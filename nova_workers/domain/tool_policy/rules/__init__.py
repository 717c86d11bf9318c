"""Policies on tool calls. Web pages as text are in `pages`: processes without tools import the policies only."""

from nova_workers.domain.tool_policy.rules.approvals import lasting_call
from nova_workers.domain.tool_policy.rules.modes import ModeRules
from nova_workers.domain.tool_policy.rules.policy import CommandPolicy, ToolPolicy, Verdict

__all__ = ["CommandPolicy", "ModeRules", "ToolPolicy", "Verdict", "lasting_call"]
