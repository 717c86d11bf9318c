"""What stands between a model and what its tools can do: who may call what, and what may be reached."""

from nova_workers.tools.outbound import Outbound, OutboundResponse, OutboundRules
from nova_workers.tools.pages import WebPages
from nova_workers.tools.policy import CommandPolicy, ToolPolicy, Verdict

__all__ = ["CommandPolicy", "Outbound", "OutboundResponse", "OutboundRules", "ToolPolicy", "Verdict", "WebPages"]
