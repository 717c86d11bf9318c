"""Policies on tool calls. Web pages as text are in `pages`: processes without tools import the policies only."""

from nova_workers.tools.approvals import lasting_call
from nova_workers.tools.modes import ModeRules
from nova_workers.tools.policy import CommandPolicy, ToolPolicy, Verdict

__all__ = ["CommandPolicy", "ModeRules", "ToolPolicy", "Verdict", "lasting_call"]
