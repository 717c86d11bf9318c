"""All tools of the turn that the program does not bring itself, as one MCP server of this process.

Servers that are child processes or behind a URL are bridged too, and not handed to the program: so their headers and
environments stay here, their connections are shared as with any other engine, and a dead one is the same tool error.
"""

import asyncio
from typing import Any

import structlog
from mcp.server import Server
from mcp.types import (
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)
from mcp.types import ContentBlock as McpContent

from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.engine import ToolCall
from nova_workers.engines.claude_agent.gate import CallGate
from nova_workers.engines.claude_agent.names import BRIDGE
from nova_workers.engines.native import TurnTools
from nova_workers.engines.turn import ToolOutcome
from nova_workers.errors import ToolFailure

__all__ = ["bridge_server", "perform"]

_log = structlog.get_logger(__name__)

_CALL_ID = "claudecode/toolUseId"
"""Where the program says in a request which of the model's calls it is for."""


def bridge_server(tools: TurnTools, gate: CallGate, max_output_chars: int) -> Server[Any]:
    """Return the server."""

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.input_schema,
                    # The program runs the calls of a step at the same time only if all are said to only read. It
                    # draws no other conclusion from it here: what may run is decided by `authorize_tool`.
                    annotations=ToolAnnotations(read_only_hint=True),
                )
                for tool in (await tools.connect()).values()
            ]
        )

    async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
        call_id = str((params.meta or {}).get(_CALL_ID) or "")
        call = ToolCall(call_id, params.name, params.arguments or {}, step=0, sequence=0, status="running")
        outcome = await perform(tools, call, max_output_chars)
        if call_id:
            gate.settle(call_id, outcome)
        return CallToolResult(content=[_to_mcp(block) for block in outcome.content], is_error=outcome.failed)

    return Server(BRIDGE, on_list_tools=list_tools, on_call_tool=call_tool)
