"""The tool servers of an editor's settings: they run on the editor's machine, and serve the runs of one session."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import httpx2
from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent, Tool

from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.run_options import ClientTool

AnyServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

_START_S: Final = 30.0
"""Longest wait for a server's tools. A session begins without those of a server that takes longer."""
_TIMEOUT_S: Final = 600.0
_STOP_S: Final = 5.0
"""Longest wait for servers to end by themselves."""
_NAME_CHARS: Final = 64


@dataclass
class _Running:
    """A server that runs, in a task of its own: what opens a connection must close it."""

    settings: HttpMcpServer | McpServerStdio
    cwd: str
    started: asyncio.Future[tuple[Client, list[Tool]]]
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self) -> None:
        """Keep the connection until `closing`."""
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._client(stack))
                self.started.set_result((client, await _tools(client)))
                await self.closing.wait()
        except Exception as error:
            if not self.started.done():
                self.started.set_exception(error)

    async def _client(self, stack: AsyncExitStack) -> Client:
        settings = self.settings
        if isinstance(settings, McpServerStdio):
            env = {each.name: each.value for each in settings.env}
            program = StdioServerParameters(command=settings.command, args=settings.args, env=env, cwd=self.cwd)
            return Client(stdio_client(program, sys.stderr), read_timeout_seconds=_TIMEOUT_S, cache=None)
        headers = {each.name: each.value for each in settings.headers}
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_S))
        return Client(
            streamable_http_client(settings.url, http_client=http), read_timeout_seconds=_TIMEOUT_S, cache=None
        )


class ToolServers:
    """The tool servers of a session.

    Attributes:
        tools: Their tools, as a run takes them.
        reading: The names of those tools that change nothing, as their servers say.
        failures: What became of the servers that could not be used, in words.
    """

    def __init__(self) -> None:
        self.tools: list[ClientTool] = []
        self.reading: set[str] = set()
        self.failures: list[str] = []
        self._calls: dict[str, tuple[Client, str]] = {}
        self._running: list[_Running] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, servers: Sequence[AnyServer], cwd: str) -> None:
        """Start servers, all at once, and learn their tools."""
        loop = asyncio.get_running_loop()
        for server in servers:
            if not isinstance(server, HttpMcpServer | McpServerStdio):
                self.failures.append(f"{server.name}: servers of this kind are not supported; use stdio or http")
                continue
            running = _Running(server, cwd, loop.create_future())
            self._running.append(running)
            self._tasks.append(loop.create_task(running.serve()))
        for running in self._running:
            try:
                client, tools = await asyncio.wait_for(asyncio.shield(running.started), _START_S)
            except Exception as error:
                self.failures.append(f"{running.settings.name}: {error or type(error).__name__}")
                continue
            self._offer(running.settings.name, client, tools)

    def _offer(self, server: str, client: Client, tools: Sequence[Tool]) -> None:
        for tool in tools:
            name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{tool.name}")[:_NAME_CHARS]
            if name in self._calls:
                self.failures.append(f"{server}: its tool {tool.name!r} has the name of another one")
                continue
            self._calls[name] = client, tool.name
            if tool.annotations is not None and tool.annotations.read_only_hint:
                self.reading.add(name)
            schema = tool.input_schema if tool.input_schema.get("type") == "object" else {"type": "object"}
            self.tools.append(ClientTool(name=name, description=(tool.description or "")[:10_000], input_schema=schema))

    def has(self, name: str) -> bool:
        """Return whether a tool is one of these."""
        return name in self._calls

    async def call(self, name: str, params: dict[str, object]) -> tuple[str, bool]:
        """Call a tool; return the text of the result, and whether it failed."""
        client, tool = self._calls[name]
        try:
            result = await client.call_tool(tool, params)
        except Exception as error:
            return f"The call failed: {error or type(error).__name__}", True
        return _text(result), bool(result.is_error)

    async def stop(self) -> None:
        """Stop the servers."""
        for running in self._running:
            running.closing.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_S)
        await stop_tasks(self._tasks)
        for running in self._running:
            if running.started.done() and not running.started.cancelled():
                running.started.exception()


async def _tools(client: Client) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            return found


def _text(result: CallToolResult) -> str:
    texts = [block.text if isinstance(block, TextContent) else f"[{block.type}]" for block in result.content]
    return "\n".join(texts)
