"""Policies on tool calls, and web pages as text."""

from nova_workers.tools.approvals import lasting_call
from nova_workers.tools.modes import ModeRules
from nova_workers.tools.pages import WebPages
from nova_workers.tools.policy import CommandPolicy, ToolPolicy, Verdict

__all__ = ["CommandPolicy", "ModeRules", "ToolPolicy", "Verdict", "WebPages", "lasting_call"]
