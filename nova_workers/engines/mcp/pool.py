"""A process's connections to MCP servers, which turns share if their configuration is equal.

The key has everything that could make servers behave differently: the command with its arguments and environment, or
the address with its headers, and the scope. So a connection opened with one tenant's secrets never serves another. An
in-process server gets a new connection for each turn, at almost no cost.
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
from nova_workers.shell_sandbox import ShellSandbox

__all__ = ["CallLost", "ConnectionPool", "Lease", "PooledConnection"]

_log = structlog.get_logger(__name__)

_Key = tuple[Any, ...]

_IDLE_S = 300.0
"""How long an unused connection stays open; a conversation's next message mostly comes sooner."""
_AVOID_S = 30.0
"""How long a server that did not answer is not tried again."""
_CHECK_TIMEOUT_S = 5.0
"""Time limit for a reused connection to list its tools; after that it is replaced."""
_CLOSE_TIMEOUT_S = 10.0
"""The MCP client gives a child process at most 6.5 s."""


@dataclass(slots=True, eq=False)
class PooledConnection:
    """A connection with the number of its users.

    Attributes:
        key: What must be equal for turns to share it; None if it is not shared.
        retired: No further turn may take it; it closes with its last user.
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
        self,
        *,
        idle_s: float = _IDLE_S,
        avoid_s: float = _AVOID_S,
        make_transport: MakeTransport | None = None,
        sandbox: ShellSandbox | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            idle_s: How long an unused connection stays open.
            avoid_s: How long a server that did not answer is not tried again.
            make_transport: Creates the HTTP transport for servers behind a URL; None uses the HTTP client's own.
            sandbox: Encloses the programs of tenants with ceilings, and hides NOVA_HOME from those of others; without
                one those of tenants with ceilings are not started.
        """
        self._sandbox = sandbox
        self._make_transport = make_transport
        self._idle_s = idle_s
        self._avoid_s = avoid_s
        self._shared: dict[_Key, PooledConnection] = {}
        self._avoided: dict[_Key, _Avoided] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def lease(self, name: str, server: McpServer) -> Lease:
        """Return a turn's lease of a server. It connects at its first use, and must be released."""
        return Lease(self, name, server)

    async def close(self) -> None:
        """Close all shared connections. Child processes end."""
        for held in tuple(self._shared.values()):
            self.retire(held)
            self._discard(held)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_TIMEOUT_S)

    async def take(self, name: str, server: McpServer) -> tuple[PooledConnection, bool]:
        """Return an open connection, and whether it existed before. For leases, which return it.

        Raises:
            ConnectionError: The server does not answer, or did not recently.
        """
        key = _key(server)
        self._check_avoided(key)
        held = None if key is None else self._shared.get(key)
        if held is not None and held.connection.lost:
            self.retire(held)
            held = None
        reused = held is not None
        if held is None:
            held = PooledConnection(
                ServerConnection(name, server, self._make_transport, self._sandbox), key, retired=key is None
            )
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
            self.put_back(held)
            raise
        return held, reused

    def put_back(self, held: PooledConnection) -> None:
        """Return a connection that a turn no longer uses. For leases."""
        held.users -= 1
        if held.users > 0:
            return
        if held.connection.opening or held.connection.lost:
            self.retire(held)
        if held.retired:
            self._discard(held)
        else:
            held.expiry = asyncio.get_running_loop().call_later(self._idle_s, self._expire, held)

    def retire(self, held: PooledConnection) -> None:
        """Exclude a connection from further use; turns that have it keep it."""
        held.retired = True
        if held.key is not None and self._shared.get(held.key) is held:
            del self._shared[held.key]

    def _expire(self, held: PooledConnection) -> None:
        self.retire(held)
        self._discard(held)

    def _discard(self, held: PooledConnection) -> None:
        """Close it in the background, so that a slow server does not delay the caller."""
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
        # Remove expired entries; one of a server that is not used again would stay for ever.
        self._avoided = {known: avoided for known, avoided in self._avoided.items() if now_s < avoided.until_s}
        self._avoided[key] = _Avoided(reason, now_s + self._avoid_s)


class CallLost(ConnectionError):
    """The connection was lost during a call, which may have had an effect."""


class Lease:
    """A turn's use of one server: connects when needed, and again if the connection was lost."""

    def __init__(self, pool: ConnectionPool, name: str, server: McpServer) -> None:
        self.name = name
        self.server = server
        self._pool = pool
        self._held: PooledConnection | None = None
        self._given_up: str | None = None
        self._taking = asyncio.Lock()

    async def list_tools(self) -> list[Tool]:
        """Return the tools on the allow-list, in the server's order.

        For a reused connection this is the health check: if it fails, the connection is replaced, once. An in-process
        server with a known listing is not connected to.

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
            self._put_back()
            if not reused:
                raise
            _log.info("mcp_connection_replaced", server=self.name)
            held, _ = await self._connected()
            return await held.connection.list_tools()

    async def call(
        self,
        tool: str,
        arguments: JsonObject,
        on_progress: OnProgress | None = None,
        *,
        call_id: str | None = None,
    ) -> CallToolResult:
        """Call a tool, over a new connection if the old one is lost.

        A blocked server costs only one timeout: the turn's later calls to it fail at once.

        Raises:
            ConnectionError: The server does not answer, so that the call was not made.
            CallLost: The connection was lost during the call.
            TimeoutError: The tool did not answer in time.
            MCPError: The server refused.
        """
        if self._given_up is not None:
            raise ConnectionError(self._given_up)
        held, _ = await self._connected()
        timeout_s = None if isinstance(self.server, InProcessMcpServer) else self.server.timeout_s
        try:
            return await held.connection.call(tool, arguments, timeout_s, on_progress, call_id=call_id)
        except ConnectionError as error:
            if held.connection.not_answering is not None:
                self._given_up = held.connection.not_answering
                self._pool.retire(held)
                if self._held is held:
                    self._put_back()
            raise CallLost(str(error)) from error

    async def release(self) -> None:
        """Return the connection to the pool. A connection to an in-process server is closed before this returns."""
        held = self._held
        if held is not None and isinstance(self.server, InProcessMcpServer):
            await held.connection.close()
        self._put_back()

    async def _connected(self) -> tuple[PooledConnection, bool]:
        async with self._taking:
            if self._held is not None and self._held.connection.lost:
                self._put_back()
            if self._held is not None:
                return self._held, True
            self._held, reused = await self._pool.take(self.name, self.server)
            return self._held, reused

    def _put_back(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._pool.put_back(held)


def _key(server: McpServer) -> _Key | None:
    """Return what must be equal for turns to share a connection; None for a server that is not shared."""
    match server:
        case StdioMcpServer(reuse=True):
            env = tuple(sorted(server.env.items()))
            return ("stdio", server.scope, server.command, server.args, env, server.cwd, server.enclosure)
        case HttpMcpServer(reuse=True):
            return ("http", server.scope, server.url, tuple(sorted(server.headers.items())))
        case _:
            return None
