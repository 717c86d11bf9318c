"""Connections to MCP servers, one for each server and turn.

Each connection lives in a task of its own. The MCP client's task groups belong to the task that opened them, and a
transport that dies cancels that task: so it must not be the turn's. Calls are made from any task; those to a
server of this process run in the caller's own task and context, with no JSON between.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import structlog
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, Tool

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import HttpMcpServer, InProcessMcpServer, McpServer, StdioMcpServer
from nova_workers.errors import EngineFailure

__all__ = ["ServerConnection"]

_log = structlog.get_logger(__name__)

_STREAM_READ_TIMEOUT_S = 300.0
"""A server may hold a response stream open this long; MCP's own recommendation."""


class ServerConnection:
    """One MCP server, connected."""

    def __init__(self, name: str, server: McpServer) -> None:
        self.name = name
        self._server = server
        self._client: Client | None = None
        self._opened = asyncio.Event()
        self._closing = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    async def open(self) -> None:
        """Connect.

        Raises:
            EngineFailure: The server does not answer; trying again may help.
        """
        self._keeper = asyncio.create_task(self._keep(), name=f"mcp-{self.name}")
        try:
            async with asyncio.timeout(getattr(self._server, "timeout_s", None)):
                await self._opened.wait()
        except TimeoutError as error:
            self._failure = error
        if self._client is None:
            raise EngineFailure(
                f"The MCP server {self.name!r} cannot be reached: {_cause(self._failure)}",
                kind="unknown",
                retryable=True,
                server=self.name,
            )

    async def close(self) -> None:
        """Disconnect; a server that is a child process ends."""
        self._closing.set()
        if self._keeper is not None:
            if not self._opened.is_set():
                self._keeper.cancel()
            await asyncio.wait((self._keeper,))

    async def list_tools(self) -> list[Tool]:
        """Return the server's tools that the allow-list lets through, in the server's order."""
        allowed = self._server.tools
        tools: list[Tool] = []
        cursor: str | None = None
        while True:
            page = await self._require_client().list_tools(cursor=cursor)
            tools += [tool for tool in page.tools if allowed is None or tool.name in allowed]
            cursor = page.next_cursor
            if cursor is None:
                return tools

    async def call(self, tool: str, arguments: JsonObject) -> CallToolResult:
        """Call a tool. Raises what the MCP client raises."""
        return await self._require_client().call_tool(tool, arguments)

    def _require_client(self) -> Client:
        if self._client is None:
            raise ConnectionError(f"The MCP server {self.name!r} is not connected")
        return self._client

    async def _keep(self) -> None:
        try:
            async with _client(self._server) as client:
                self._client = client
                self._opened.set()
                await self._closing.wait()
        except Exception as error:
            # The head of this task: calls in flight have their own errors, and whoever waits in `open` is told.
            self._failure = error
            if self._opened.is_set():
                _log.warning("mcp_server_lost", server=self.name, exc_info=True)
        finally:
            self._client = None
            self._opened.set()


@asynccontextmanager
async def _client(server: McpServer) -> AsyncGenerator[Client]:
    async with AsyncExitStack() as stack:
        match server:
            case InProcessMcpServer():
                # A fresh client has nothing to gain from a response cache.
                client = Client(server.server, cache=None)
            case StdioMcpServer():
                process = StdioServerParameters(
                    command=server.command, args=list(server.args), env=dict(server.env), cwd=server.cwd
                )
                client = Client(process, read_timeout_seconds=server.timeout_s, cache=None)
            case HttpMcpServer():
                timeout = httpx2.Timeout(server.timeout_s, read=max(server.timeout_s, _STREAM_READ_TIMEOUT_S))
                http = await stack.enter_async_context(
                    httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout)
                )
                transport = streamable_http_client(server.url, http_client=http)
                client = Client(transport, read_timeout_seconds=server.timeout_s, cache=None)
        yield await stack.enter_async_context(client)


def _cause(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
