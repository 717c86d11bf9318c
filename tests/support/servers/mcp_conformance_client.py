"""The workers' MCP client as a program of the protocol's conformance suite: lists a server's tools, and calls them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from typing import Any

from mcp import MCPError
from mcp.types import Tool

from nova_workers.contracts.engine import HttpMcpServer
from nova_workers.engines.mcp.connection import ServerConnection


async def main(url: str) -> None:
    """Use a server as a turn does."""
    connection = ServerConnection("suite", HttpMcpServer(url))
    connection.start()
    await connection.ready(10)
    try:
        tools = await connection.list_tools(10)
        context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
        for name, arguments in _calls(context, tools):
            with suppress(MCPError):
                await connection.call(name, arguments)
    finally:
        await connection.close()


def _calls(context: dict[str, Any], tools: list[Tool]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that the suite asks for, or one of each tool."""
    if (asked := context.get("toolCalls")) is not None:
        return [(call["name"], call.get("arguments") or {}) for call in asked]
    return [(tool.name, _arguments(tool.input_schema)) for tool in tools]


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a value for each property."""
    examples: dict[str, Any] = {"number": 2, "integer": 2, "boolean": True, "string": "text"}
    properties: dict[str, Any] = schema.get("properties", {})
    return {name: examples.get(str(each.get("type")), None) for name, each in properties.items()}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
