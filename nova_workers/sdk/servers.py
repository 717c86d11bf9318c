"""Tools of server objects of the official MCP library, found in code of users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver import MCPServer

from nova_workers.contracts.content import JsonObject
from nova_workers.sdk.context import ToolContext
from nova_workers.sdk.declaration import ToolOptions


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool of a server object. See `FunctionTool` for the attributes."""

    name: str
    description: str
    input_schema: JsonObject
    options: ToolOptions
    place: str
    function: Callable[..., Any]
    is_async: bool = True

    def arguments(self, given: JsonObject, context: ToolContext) -> dict[str, Any]:
        """Return the arguments of the server's own function, which checks them itself."""
        del context
        return {"name": self.name, "arguments": given}


def tools_of(server: MCPServer[Any], place: str) -> Iterator[ServerTool]:
    """Yield the tools of a server object.

    Args:
        server: The object.
        place: The module in which it was found.
    """
    # There is no public way to read them without an event loop, and an import has none.
    manager = server._tool_manager  # pyright: ignore[reportPrivateUsage] - see above
    for tool in manager.list_tools():
        hints = tool.annotations
        read_only = bool(hints and hints.read_only_hint)
        options = ToolOptions(
            tool.name, idempotent=read_only or bool(hints and hints.idempotent_hint), read_only=read_only
        )
        yield ServerTool(tool.name, tool.description or "", tool.parameters, options, place, server.call_tool)
