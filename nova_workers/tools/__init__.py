"""What stands between a model and what its tools can do: who may call what."""

from nova_workers.tools.pages import WebPages
from nova_workers.tools.policy import CommandPolicy, ToolPolicy, Verdict

__all__ = ["CommandPolicy", "ToolPolicy", "Verdict", "WebPages"]
