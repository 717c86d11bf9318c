"""The MCP servers that a process is connected to: turns share connections, as far as their configuration agrees.

What tells two servers apart is all that could make them behave differently: the command with its arguments and
environment, or the address with its headers, and the scope. So what one tenant's secrets opened never serves another.
A server of this process is connected to anew for each turn, which costs next to nothing.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import structlog
from mcp.types import CallToolResult, Tool

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import HttpMcpServer, InProcessMcpServer, McpServer, StdioMcpServer
from nova_workers.engines.mcp.connection import MakeTransport, OnProgress, ServerConnection

__all__ = ["ConnectionPool", "Held", "Lease"]

_log = structlog.get_logger(__name__)

_Key = tuple[Any, ...]

_IDLE_S = 300.0
"""A conversation's next message mostly comes sooner."""
_AVOID_S = 30.0
"""A server that did not answer is not waited for again for this long."""
_CHECK_TIMEOUT_S = 5.0
"""A connection that was used before has this long to say which tools it has; then a new one is made."""
_CLOSE_TIMEOUT_S = 10.0
"""The MCP client gives a child process 6.5 s at the most."""


@dataclass(slots=True, eq=False)
class Held:
    """A connection and who uses it.

    Attributes:
        key: What turns must agree in to share it; None if none may.
        retired: Nobody may take it any more; it closes with its last user.
    """

    connection: ServerConnection
    key: _Key | None
    users: int = 0
    retired: bool = False
    expiry: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True)
class _Avoided:
    reason: str
    until_s: float


class ConnectionPool:
    """One object serves a process, on one event loop."""

    def __init__(
        self, *, idle_s: float = _IDLE_S, avoid_s: float = _AVOID_S, make_transport: MakeTransport | None = None
    ) -> None:
        """Connect to nothing yet.

        Args:
            idle_s: A connection that nobody has used for so long is closed.
            avoid_s: So long after a server did not answer, it is not tried again.
            make_transport: What carries the requests to servers behind a URL; None takes the HTTP client's own.
        """
        self._make_transport = make_transport
        self._idle_s = idle_s
        self._avoid_s = avoid_s
        self._shared: dict[_Key, Held] = {}
        self._avoided: dict[_Key, _Avoided] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def lease(self, name: str, server: McpServer) -> Lease:
        """Return a turn's hold on a server. Nothing is connected before its first use; it must be released."""
        return Lease(self, name, server)

    async def close(self) -> None:
        """Close every connection that is shared. Child processes end."""
        for held in tuple(self._shared.values()):
            self.retire(held)
            self._discard(held)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_TIMEOUT_S)

    async def take(self, name: str, server: McpServer) -> tuple[Held, bool]:
        """Return an open connection, and whether it was there before. For leases, which give it back.

        Raises:
            ConnectionError: The server does not answer, or lately did not.
        """
        key = _key(server)
        self._check_avoided(key)
        held = None if key is None else self._shared.get(key)
        if held is not None and held.connection.lost:
            self.retire(held)
            held = None
        reused = held is not None
        if held is None:
            held = Held(ServerConnection(name, server, self._make_transport), key, retired=key is None)
            held.connection.start()
            if key is not None:
                self._shared[key] = held
        held.users += 1
        if held.expiry is not None:
            held.expiry.cancel()
            held.expiry = None
        try:
            await held.connection.ready()
        except BaseException as error:
            if isinstance(error, ConnectionError):
                self._avoid(key, str(error))
                self.retire(held)
            self.give_back(held)
            raise
        return held, reused

    def give_back(self, held: Held) -> None:
        """Say that a turn does not use a connection any more. For leases."""
        held.users -= 1
        if held.users > 0:
            return
        if held.connection.opening or held.connection.lost:
            self.retire(held)
        if held.retired:
            self._discard(held)
        else:
            held.expiry = asyncio.get_running_loop().call_later(self._idle_s, self._expire, held)

    def retire(self, held: Held) -> None:
        """Let nobody take this connection any more; those who have it keep it."""
        held.retired = True
        if held.key is not None and self._shared.get(held.key) is held:
            del self._shared[held.key]

    def _expire(self, held: Held) -> None:
        self.retire(held)
        self._discard(held)

    def _discard(self, held: Held) -> None:
        """Close it in the background: a server that does not want to end keeps nobody waiting."""
        if held.expiry is not None:
            held.expiry.cancel()
        connection = held.connection
        if not connection.closed:
            task = asyncio.create_task(connection.close(), name=f"mcp-close-{connection.name}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _check_avoided(self, key: _Key | None) -> None:
        avoided = None if key is None else self._avoided.get(key)
        if avoided is None or key is None:
            return
        if time.monotonic() < avoided.until_s:
            raise ConnectionError(avoided.reason)
        del self._avoided[key]

    def _avoid(self, key: _Key | None, reason: str) -> None:
        if key is None:
            return
        now_s = time.monotonic()
        # A server that nobody asks for again would stay for ever.
        self._avoided = {known: avoided for known, avoided in self._avoided.items() if now_s < avoided.until_s}
        self._avoided[key] = _Avoided(reason, now_s + self._avoid_s)


class Lease:
    """A turn's hold on one server: connects when needed, and again when the connection was lost."""

    def __init__(self, pool: ConnectionPool, name: str, server: McpServer) -> None:
        self.name = name
        self.server = server
        self._pool = pool
        self._held: Held | None = None
        self._given_up: str | None = None
        self._taking = asyncio.Lock()

    async def list_tools(self) -> list[Tool]:
        """Return the tools that the allow-list lets through, in the server's order.

        For a connection that was there before this is the health check: one that fails it is replaced, once. A server
        of this process that says beforehand what it has is not connected to.

        Raises:
            ConnectionError: The server does not answer.
        """
        known = self.server.listing if isinstance(self.server, InProcessMcpServer) else None
        tools = await self._ask_for_tools() if known is None else known
        allowed = self.server.tools
        return [tool for tool in tools if allowed is None or tool.name in allowed]

    async def _ask_for_tools(self) -> list[Tool]:
        held, reused = await self._connected()
        try:
            return await held.connection.list_tools(_CHECK_TIMEOUT_S if reused else None)
        except ConnectionError:
            self._pool.retire(held)
            self._let_go()
            if not reused:
                raise
            _log.info("mcp_connection_replaced", server=self.name)
            held, _ = await self._connected()
            return await held.connection.list_tools()

    async def call(self, tool: str, arguments: JsonObject, on_progress: OnProgress | None = None) -> CallToolResult:
        """Call a tool, over a new connection if the old one is lost.

        A server that blocks costs one timeout: the turn's later calls to it fail at once.

        Raises:
            ConnectionError: The server does not answer.
            TimeoutError: The tool did not answer in time.
            MCPError: The server refused.
        """
        if self._given_up is not None:
            raise ConnectionError(self._given_up)
        held, _ = await self._connected()
        timeout_s = None if isinstance(self.server, InProcessMcpServer) else self.server.timeout_s
        try:
            return await held.connection.call(tool, arguments, timeout_s, on_progress)
        except ConnectionError:
            if held.connection.not_answering is not None:
                self._given_up = held.connection.not_answering
                self._pool.retire(held)
                if self._held is held:
                    self._let_go()
            raise

    async def release(self) -> None:
        """Give the connection back. One to a server of this process is closed before this returns."""
        held = self._held
        if held is not None and isinstance(self.server, InProcessMcpServer):
            await held.connection.close()
        self._let_go()

    async def _connected(self) -> tuple[Held, bool]:
        async with self._taking:
            if self._held is not None and self._held.connection.lost:
                self._let_go()
            if self._held is not None:
                return self._held, True
            self._held, reused = await self._pool.take(self.name, self.server)
            return self._held, reused

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._pool.give_back(held)


def _key(server: McpServer) -> _Key | None:
    """Return what turns must agree in to share a connection; None for a server that none is shared to."""
    match server:
        case StdioMcpServer(reuse=True):
            env = tuple(sorted(server.env.items()))
            return ("stdio", server.scope, server.command, server.args, env, server.cwd)
        case HttpMcpServer(reuse=True):
            return ("http", server.scope, server.url, tuple(sorted(server.headers.items())))
        case _:
            return None
