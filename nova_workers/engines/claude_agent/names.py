"""Maps our tool names to the program's."""

from nova_workers.contracts.native import FILE_TOOLS, SHELL_TOOL
from nova_workers.engines.programs.tool_server import SERVER

BRIDGE = SERVER
"""The program's only MCP server, which bridges all servers of the turn."""
BRIDGE_PATTERN = f"mcp__{BRIDGE}"
"""The permission rule that allows every tool of it."""

SUBAGENT_TOOL = "Agent"
BUILT_IN = frozenset({*FILE_TOOLS, SHELL_TOOL, "WebSearch", "Skill", SUBAGENT_TOOL})
"""Tools that the program runs itself. WebFetch is not one of them: see `nova_workers.engines.claude_agent.trust`."""

_PREFIX = f"{BRIDGE_PATTERN}__"


def program_name(name: str) -> str:
    """Return the program's name of a tool."""
    return name if name in BUILT_IN else f"{_PREFIX}{name}"


def own_name(name: str) -> str:
    """Return our name of a tool of the program."""
    return name.removeprefix(_PREFIX)
