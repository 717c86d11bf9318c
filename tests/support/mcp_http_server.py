"""An MCP server over HTTP on loopback, in the test's own loop: keeps what it was given, and says it again."""

import asyncio
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

__all__ = ["McpHttpServer"]


class McpHttpServer:
    """A server with one tool, ``deliver``."""

    def __init__(self) -> None:
        self.delivered: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.host = ""
        self._server: uvicorn.Server
        self._task: asyncio.Task[None]

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.host}/mcp"

    async def __aenter__(self) -> "McpHttpServer":
        config = uvicorn.Config(self._tools().streamable_http_app(), host="127.0.0.1", port=0, log_config=None)
        self._server = uvicorn.Server(config)
        self._task = asyncio.create_task(self._server.serve())
        while not self._server.started:  # noqa: ASYNC110 - uvicorn has a flag and no event
            await asyncio.sleep(0.01)
        self.host = f"127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        await self._task

    def _tools(self) -> MCPServer:
        server = MCPServer("http")

        @server.tool()
        async def deliver(text: str, ctx: Context[Any]) -> str:
            """Take a text, and say it again with the header that came."""
            self.delivered.append(text)
            self.headers.append({key.lower(): value for key, value in (ctx.headers or {}).items()})
            return f"got {text} with {self.headers[-1].get('authorization')}"

        @server.tool()
        async def idle() -> str:
            """Do nothing."""
            return "idle"

        return server
