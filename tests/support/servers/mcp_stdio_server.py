"""An MCP server as a child process, for the tests: echoes, reports its pid and its progress, or dies."""

import asyncio
import os
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("child")
_canceled: list[str] = []


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return f"{os.environ.get('GREETING', '')}{text}"


@server.tool()
def pid() -> str:
    """Return the process id."""
    return str(os.getpid())


@server.tool()
def complain() -> str:
    """Write to stderr."""
    sys.stderr.write(f"no good: {os.environ.get('GREETING')}\n")
    sys.stderr.flush()
    return "said"


@server.tool()
def die() -> str:
    """End without an answer."""
    os._exit(1)


@server.tool()
async def count(ctx: Context[Any]) -> str:
    """Report progress."""
    for number in (1, 2, 3):
        await ctx.report_progress(number, 3, f"at {number}")
    return "counted"


@server.tool()
async def hang() -> str:
    """Never answer; record a cancellation."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        _canceled.append("hang")
        raise
    return "late"


@server.tool()
def canceled() -> str:
    """Return the canceled calls."""
    return ",".join(_canceled)


if __name__ == "__main__":
    server.run("stdio")
