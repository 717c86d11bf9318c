"""An MCP server as a child process, for the tests: echoes, reports its pid, or dies."""

import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("child")


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return f"{os.environ.get('GREETING', '')}{text}"


@server.tool()
def pid() -> str:
    """Say who you are."""
    return str(os.getpid())


@server.tool()
def die() -> str:
    """End without an answer."""
    os._exit(1)


if __name__ == "__main__":
    server.run("stdio")
