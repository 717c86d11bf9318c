"""The public kit for code of users: tools in Python that agents of a fleet can call.

Importing it loads no server, no engine and no MCP library.
"""

from nova_workers.base.errors import ToolFailure
from nova_workers.sdk.context import ToolContext
from nova_workers.sdk.declaration import tool

__all__ = ["ToolContext", "ToolFailure", "tool"]
