"""An MCP server over HTTP on loopback, in the test's own loop: records what it gets, and echoes it."""

from contextlib import AsyncExitStack
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

from tests.support.servers.asgi import serving


class McpHttpServer:
    """A server with one tool, ``deliver``."""

    def __init__(self) -> None:
        self.delivered: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.host = ""
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://{self.host}/mcp"

    async def __aenter__(self) -> "McpHttpServer":
        url = await self._stack.enter_async_context(serving(self._tools().streamable_http_app()))
        self.host = url.removeprefix("http://")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _tools(self) -> MCPServer:
        server = MCPServer("http")

        @server.tool()
        async def deliver(text: str, ctx: Context[Any]) -> str:
            """Return the text and the header of the request."""
            self.delivered.append(text)
            self.headers.append({key.lower(): value for key, value in (ctx.headers or {}).items()})
            return f"got {text} with {self.headers[-1].get('authorization')}"

        @server.tool()
        async def idle() -> str:
            """Do nothing."""
            return "idle"

        return server
