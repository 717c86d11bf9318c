"""The processes of tools of users."""

from nova_workers.base.config import Settings
from nova_workers.engines.commands import ShellSettings
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.tool_programs import McpToolPrograms
from nova_workers.shell_sandbox import NoSandbox

_LEAST_START_S = 30.0
"""A call waits for the start of its process, where a turn would rather go on without an MCP server."""


def build(settings: Settings, shell: ShellSettings) -> McpToolPrograms:
    """Return the runner of them, with connections of its own."""
    return McpToolPrograms(
        ConnectionPool(
            start_timeout_s=max(settings.tools.mcp_start_timeout_s, _LEAST_START_S),
            sandbox=shell.enclosing or NoSandbox(shell.why_none),
        )
    )
