"""A process's connections to MCP servers, which turns share if their configuration is equal.

The key has everything that could make servers behave differently: the command with its arguments and environment, or
the address with its headers, and the scope. So a connection opened with one tenant's secrets never serves another. An
in-process server gets a new connection for each turn, at almost no cost.

A server that does not start in time costs a turn its start time-out once, and not its turn. It then rests: turns go on
without it at once, until it is tried again after a time that doubles with each failure. A slow server goes on to start
meanwhile, and is there for the turns after that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from mcp.types import CallToolResult, Tool

from nova_workers.base.observability.redaction import hide
from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import HttpMcpServer, InProcessMcpServer, McpServer, StdioMcpServer
from nova_workers.contracts.user_agents import AgentRequest, AgentSaid, ReportText
from nova_workers.contracts.user_tools import CallContext
from nova_workers.engines.mcp.connection import MakeTransport, OnProgress, ServerConnection
from nova_workers.shell_sandbox import NoSandbox, ShellSandbox

_log = structlog.get_logger(__name__)

_Key = tuple[Any, ...]

_IDLE_S = 300.0
"""How long an unused connection stays open; a conversation's next message mostly comes sooner."""
_START_TIMEOUT_S = 10.0
"""The time for a server to start and to list its tools; also to start again in mid-turn."""
_REST_S = 10.0
_MOST_REST_S = 300.0
_MOST_DOUBLINGS = 10
_FORGOTTEN_S = 1_800.0
"""After this long without a try, a server's failures do not count any more."""
_CHECK_TIMEOUT_S = 5.0
"""For a reused connection to list its tools, within half of the start time-out; after that it is replaced."""
_LEAST_S = 0.1
"""The time for what follows when the start time-out is spent."""
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


class ServerAway(ConnectionError):
    """A server does not answer, or did not recently.

    Attributes:
        output: The last lines that its process wrote to stderr, redacted.
    """

    def __init__(self, reason: str, output: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.output = output


@dataclass(slots=True)
class _Rest:
    """The time in which a server is not tried.

    Attributes:
        failures: Failed starts since it last answered.
        reason: Why the last one failed.
        output: What its process wrote last.
        until_s: The end.
    """

    failures: int
    reason: str
    output: tuple[str, ...]
    until_s: float


class ConnectionPool:
    """One object serves a process, on one event loop."""

    def __init__(
        self,
        *,
        idle_s: float = _IDLE_S,
        start_timeout_s: float = _START_TIMEOUT_S,
        rest_s: float = _REST_S,
        clock_s: Callable[[], float] = time.monotonic,
        make_transport: MakeTransport | None = None,
        sandbox: ShellSandbox | NoSandbox | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            idle_s: How long an unused connection stays open.
            start_timeout_s: How long a turn waits for a server to start and to list its tools.
            rest_s: How long a server rests after a failed start. It doubles with each further failure, up to 5 min.
            clock_s: The time.
            make_transport: Creates the HTTP transport for servers behind a URL; None uses the HTTP client's own.
            sandbox: Encloses the programs of tenants with ceilings, and hides NOVA_HOME from those of others; without
                one those of tenants with ceilings are not started.
        """
        self._sandbox = sandbox
        self._make_transport = make_transport
        self._idle_s = idle_s
        self.start_timeout_s = start_timeout_s
        self._rest_s = rest_s
        self._clock_s = clock_s
        self._shared: dict[_Key, PooledConnection] = {}
        self._rests: dict[_Key, _Rest] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def lease(self, name: str, server: McpServer) -> Lease:
        """Return a turn's lease of a server. It connects at its first use, and must be released."""
        return Lease(self, name, server)

    async def close(self) -> None:
        """Close all shared connections. Child processes end."""
        await stop_tasks(self._starting)
        for held in tuple(self._shared.values()):
            self.retire(held)
            self._discard(held)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_TIMEOUT_S)

    async def take(self, name: str, server: McpServer, within_s: float) -> tuple[PooledConnection, bool]:
        """Return an open connection, and whether it existed before. For leases, which return it.

        Args:
            name: The server's.
            within_s: Longest wait for a server of another process.

        Raises:
            ServerAway: The server does not answer, or did not recently.
        """
        self._check_rest(server)
        key = _key(server)
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
            await held.connection.ready(
                None if isinstance(server, InProcessMcpServer) else min(within_s, server.timeout_s)
            )
        except ConnectionError as error:
            if held.connection.opening and key is not None:
                self._start_late(held, server)
            else:
                self.retire(held)
                self.put_back(held)
            raise self.failed(server, held.connection, error) from error
        except BaseException:
            self.put_back(held)
            raise
        return held, reused

    def failed(self, server: McpServer, connection: ServerConnection, error: ConnectionError) -> ServerAway:
        """Return the error of a server that did not start, and let it rest: so other turns do not wait for it, too."""
        away = ServerAway(str(error), connection.output)
        identity = _identity(server)
        if identity is None:
            return away
        now_s = self._clock_s()
        # Without those that were not tried for long: one of a server that is not used again would stay for ever.
        self._rests = {each: rest for each, rest in self._rests.items() if now_s < rest.until_s + _FORGOTTEN_S}
        rest = self._rests.get(identity)
        if rest is not None and now_s < rest.until_s:
            # Another turn waited for the same start.
            return away
        failures = 1 if rest is None else rest.failures + 1
        rest_s = min(self._rest_s * 2 ** min(failures - 1, _MOST_DOUBLINGS), _MOST_REST_S)
        self._rests[identity] = _Rest(failures, str(away), away.output, now_s + rest_s)
        _log.warning(
            "mcp_server_rests", server=connection.name, cause=hide(str(away)), failures=failures, rest_s=rest_s
        )
        return away

    def answered(self, server: McpServer) -> None:
        """End the rest of a server, and forget its failures."""
        identity = _identity(server)
        if identity is not None and self._rests.pop(identity, None) is not None:
            _log.info("mcp_server_is_back")

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

    def _check_rest(self, server: McpServer) -> None:
        identity = _identity(server)
        rest = None if identity is None else self._rests.get(identity)
        if rest is not None and self._clock_s() < rest.until_s:
            raise ServerAway(rest.reason, rest.output)

    def _start_late(self, held: PooledConnection, server: McpServer) -> None:
        """Let a slow server go on to start, for as long as one of its calls may take. It uses the connection."""
        task = asyncio.create_task(self._until_started(held, server), name=f"mcp-start-{held.connection.name}")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _until_started(self, held: PooledConnection, server: McpServer) -> None:
        try:
            await held.connection.ready()
            await held.connection.list_tools()
        except ConnectionError as error:
            identity = _identity(server)
            rest = None if identity is None else self._rests.get(identity)
            if rest is not None:
                # Its process may have written why by now.
                rest.reason, rest.output = str(error), held.connection.output
            self.retire(held)
        else:
            self.answered(server)
        finally:
            self.put_back(held)


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
            ServerAway: The server does not answer.
        """
        known = self.server.listing if isinstance(self.server, InProcessMcpServer) else None
        tools = await self._ask_for_tools() if known is None else known
        allowed = self.server.tools
        return [tool for tool in tools if allowed is None or tool.name in allowed]

    async def _ask_for_tools(self) -> list[Tool]:
        """Ask the server. The start of one, its check and its replacement take the start time-out at most, together."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._pool.start_timeout_s

        async def ask(held: PooledConnection, most_s: float) -> list[Tool]:
            in_process = isinstance(self.server, InProcessMcpServer)
            left_s = max(until_s - loop.time(), _LEAST_S)
            return await held.connection.list_tools(None if in_process else min(left_s, most_s))

        held, reused = await self._connected(self._pool.start_timeout_s)
        try:
            start_s = self._pool.start_timeout_s
            tools = await ask(held, min(_CHECK_TIMEOUT_S, start_s / 2) if reused else start_s)
        except ConnectionError as error:
            self._give_up(held)
            if not reused:
                raise self._pool.failed(self.server, held.connection, error) from error
            _log.info("mcp_connection_replaced", server=self.name)
            held, _ = await self._connected(max(until_s - loop.time(), _LEAST_S))
            try:
                tools = await ask(held, self._pool.start_timeout_s)
            except ConnectionError as second:
                self._give_up(held)
                raise self._pool.failed(self.server, held.connection, second) from second
        self._pool.answered(self.server)
        return tools

    def _give_up(self, held: PooledConnection) -> None:
        self._pool.retire(held)
        self._put_back()

    async def call(
        self,
        tool: str,
        arguments: JsonObject,
        on_progress: OnProgress | None = None,
        *,
        call_id: str | None = None,
        meta: JsonObject | None = None,
        timeout_s: float | None = None,
    ) -> CallToolResult:
        """Call a tool, over a new connection if the old one is lost.

        A blocked server costs only one timeout: the turn's later calls to it fail at once.

        Args:
            tool: Its name.
            arguments: Its input.
            on_progress: Receives its progress.
            call_id: For an in-process server.
            meta: For any other.
            timeout_s: Its time limit; None is the server's.

        Raises:
            ConnectionError: The server does not answer, so that the call was not made.
            CallLost: The connection was lost during the call.
            TimeoutError: The tool did not answer in time.
            MCPError: The server refused.
        """
        if self._given_up is not None:
            raise ConnectionError(self._given_up)
        held, _ = await self._connected(self._pool.start_timeout_s)
        limit_s = None if isinstance(self.server, InProcessMcpServer) else timeout_s or self.server.timeout_s
        try:
            return await held.connection.call(tool, arguments, limit_s, on_progress, call_id=call_id, meta=meta)
        except ConnectionError as error:
            raise self._lost(held, error) from error

    async def ask(
        self, request: AgentRequest, context: CallContext | None, report: ReportText | None = None
    ) -> AgentSaid:
        """Ask an agent of a process, over a new connection if the old one is lost. See `ServerConnection.ask_agent`.

        Raises:
            ConnectionError: The process does not answer, so that nothing was asked.
            CallLost: The connection was lost before there was an answer.
        """
        if self._given_up is not None:
            raise ConnectionError(self._given_up)
        held, _ = await self._connected(self._pool.start_timeout_s)
        try:
            return await held.connection.ask_agent(request, context, report)
        except ConnectionError as error:
            raise self._lost(held, error) from error

    def _lost(self, held: PooledConnection, error: ConnectionError) -> CallLost:
        if held.connection.not_answering is not None:
            self._given_up = held.connection.not_answering
            self._pool.retire(held)
            if self._held is held:
                self._put_back()
        return CallLost(str(error))

    @property
    def last_output(self) -> tuple[str, ...]:
        """The last lines that the process of a connection in use wrote to stderr, redacted."""
        return () if self._held is None else self._held.connection.output

    def retire(self) -> None:
        """Let no later turn use the connection; it closes with its last user."""
        if self._held is not None:
            self._pool.retire(self._held)

    async def release(self) -> None:
        """Return the connection to the pool. A connection to an in-process server is closed before this returns."""
        held = self._held
        if held is not None and isinstance(self.server, InProcessMcpServer):
            await held.connection.close()
        self._put_back()

    async def _connected(self, within_s: float) -> tuple[PooledConnection, bool]:
        async with self._taking:
            if self._held is not None and self._held.connection.lost:
                self._put_back()
            if self._held is not None:
                return self._held, True
            self._held, reused = await self._pool.take(self.name, self.server, within_s)
            return self._held, reused

    def _put_back(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._pool.put_back(held)


def _key(server: McpServer) -> _Key | None:
    """Return the key that turns must share to share a connection; None for a server that is not shared."""
    return _identity(server) if not isinstance(server, InProcessMcpServer) and server.reuse else None


def _identity(server: McpServer) -> _Key | None:
    """Return all that could make servers behave differently; None for one of this process."""
    match server:
        case StdioMcpServer():
            env = tuple(sorted(server.env.items()))
            return (
                "stdio",
                server.scope,
                server.command,
                server.args,
                env,
                server.cwd,
                server.enclosure,
                server.readable,
                server.writable,
            )
        case HttpMcpServer():
            return ("http", server.scope, server.url, tuple(sorted(server.headers.items())))
        case _:
            return None
