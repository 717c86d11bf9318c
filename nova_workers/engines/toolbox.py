"""The MCP tools of one turn, under the names by which the model knows them."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mcp import MCPError
from mcp.types import CallToolResult, TextContent, Tool
from mcp.types import ContentBlock as McpContent

from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.contracts.engine import McpServer, ToolCall
from nova_workers.engines.connections import ServerConnection
from nova_workers.engines.turn import ToolOutcome
from nova_workers.errors import ToolFailure

__all__ = ["ToolDefinition", "Toolbox", "plain_block"]

_NOT_ALLOWED_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME_CHARS = 128


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as the model is told of it."""

    name: str
    description: str
    input_schema: JsonObject
    idempotent: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    definition: ToolDefinition
    connection: ServerConnection
    tool: str


class Toolbox:
    """Implements the turn's `Tools` over MCP servers.

    A tool keeps its own name as long as no server before it has the same; then it is ``<server>__<tool>``.
    Connects at first use, or at `connect`; must be closed.
    """

    def __init__(self, servers: Mapping[str, McpServer], to_block: Callable[[McpContent], ContentBlock]) -> None:
        self._servers = servers
        self._to_block = to_block
        self._connections: list[ServerConnection] = []
        self._entries: dict[str, _Entry] | None = None
        self._connecting = asyncio.Lock()

    async def connect(self) -> Mapping[str, ToolDefinition]:
        """Connect to every server, and return the tools by name, in a stable order.

        Raises:
            EngineFailure: A server does not answer.
        """
        async with self._connecting:
            if self._entries is None:
                self._entries = await self._open()
        return {name: entry.definition for name, entry in self._entries.items()}

    async def close(self) -> None:
        """Disconnect from every server."""
        connections, self._connections = self._connections, []
        for connection in connections:
            await connection.close()

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool declares that it may be run again."""
        tools = await self.connect()
        return name in tools and tools[name].idempotent

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Run a call.

        Raises:
            ToolFailure: There is no such tool, or its server failed.
        """
        await self.connect()
        entry = (self._entries or {}).get(call.tool_name)
        if entry is None:
            known = ", ".join(self._entries or {}) or "none"
            raise ToolFailure(f"There is no tool {call.tool_name!r}. Available: {known}.", tool=call.tool_name)
        try:
            result = await entry.connection.call(entry.tool, call.params)
        except (MCPError, ConnectionError, TimeoutError) as error:
            raise ToolFailure(f"{call.tool_name} failed: {error}", tool=call.tool_name) from error
        return self._outcome(result)

    def _outcome(self, result: CallToolResult) -> ToolOutcome:
        blocks = tuple(self._to_block(content) for content in result.content)
        if not blocks and result.structured_content is not None:
            blocks = (text_block(json.dumps(result.structured_content)),)
        return ToolOutcome(blocks, failed=result.is_error)

    async def _open(self) -> dict[str, _Entry]:
        entries: dict[str, _Entry] = {}
        for name, server in self._servers.items():
            connection = ServerConnection(name, server)
            self._connections.append(connection)
            await connection.open()
            for tool in await connection.list_tools():
                definition = _define(name, tool, entries)
                entries[definition.name] = _Entry(definition, connection, tool.name)
        return entries


def plain_block(content: McpContent) -> ContentBlock:
    """Return the text of a tool's output; of anything else, a note of what it was."""
    if isinstance(content, TextContent):
        return text_block(content.text)
    return text_block(f"[{content.type}]")


def _define(server: str, tool: Tool, taken: Mapping[str, object]) -> ToolDefinition:
    name = _NOT_ALLOWED_IN_NAMES.sub("_", tool.name)[:_MAX_NAME_CHARS]
    if name in taken:
        name = _NOT_ALLOWED_IN_NAMES.sub("_", f"{server}__{tool.name}")[:_MAX_NAME_CHARS]
    hints = tool.annotations
    return ToolDefinition(
        name=name,
        description=tool.description or "",
        input_schema=tool.input_schema,
        idempotent=hints is not None and bool(hints.idempotent_hint or hints.read_only_hint),
    )
