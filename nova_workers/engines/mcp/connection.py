"""One connection to an MCP server.

Each connection has its own task. The MCP client's task groups belong to the task that opened them, and a failing
transport cancels that task, so it must not be a turn's.

A call to an in-process server runs in the caller's task and context, without JSON. A call to any other server runs in
its own task, so that a canceled caller returns at once: the client first notifies the server, which takes seconds if
the server does not read.
"""

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

import httpx2
import structlog
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, CallToolResult, RequestParamsMeta, Tool

from nova_workers.base.json_schemas import InvalidSchema, JsonSchema
from nova_workers.base.observability.redaction import current_redactor, hiding
from nova_workers.base.observability.redactor import Redactor
from nova_workers.base.outbound.bounded import ResponseBounds, bound_responses
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import CALL_ID, HttpMcpServer, InProcessMcpServer, McpServer, StdioMcpServer
from nova_workers.contracts.user_agents import AgentRequest, AgentSaid, ReportText
from nova_workers.contracts.user_tools import CallContext
from nova_workers.engines.mcp.agent_lane import AgentLane
from nova_workers.engines.mcp.child_output import LastLines, logged_output
from nova_workers.engines.mcp.listings import tolerant
from nova_workers.engines.mcp.stdio import stdio_transport
from nova_workers.shell_sandbox import NoSandbox, ShellSandbox

_log = structlog.get_logger(__name__)


MakeTransport = Callable[[], httpx2.AsyncBaseTransport]
"""Creates the HTTP transport for a server behind a URL, such as one that restricts addresses."""


class OnProgress(Protocol):
    """Receives progress, its total if known, and a message if there is one."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Must return at once."""
        ...


_STREAM_READ_TIMEOUT_S = 300.0
"""A server may hold a response stream open this long; MCP's own recommendation."""
_PROBE_TIMEOUT_S = 2.0
"""After a call that timed out, or failed as on a closed connection: time limit for the server to list its tools."""

_MAX_TOOLS = 1_000
_MAX_TOOLS_BYTES = 4_000_000
"""The limit of all definitions as JSON: more than any model reads."""
_MAX_PAGES = 100

_Result = TypeVar("_Result")


class ServerConnection:
    """A connection to an MCP server. Any number of turns may use it concurrently."""

    def __init__(
        self,
        name: str,
        server: McpServer,
        make_transport: MakeTransport | None = None,
        sandbox: ShellSandbox | NoSandbox | None = None,
    ) -> None:
        self.name = name
        self._sandbox = sandbox
        self._server = server
        self._make_transport = make_transport
        self._client: Client | None = None
        self._opened = asyncio.Event()
        self._closing = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._output = LastLines()
        self._agents = AgentLane()
        self._broken = False
        self._not_answering: str | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._results: dict[str, JsonSchema] = {}

    @property
    def lost(self) -> bool:
        """Whether the connection failed to open, has closed or broken, or its server stopped answering."""
        return self._broken or self._not_answering is not None or (self._opened.is_set() and self._client is None)

    @property
    def not_answering(self) -> str | None:
        """Why the server counts as blocked: a call and the probe after it timed out. None if it is not blocked."""
        return self._not_answering

    @property
    def output(self) -> tuple[str, ...]:
        """The last lines that a child process wrote to stderr, redacted."""
        return self._output.all()

    @property
    def opening(self) -> bool:
        """Whether it is still unknown if the server answers."""
        return not self._opened.is_set()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing.is_set()

    def start(self) -> None:
        """Begin to connect. The connection outlives the caller, so it takes only the redactor of the caller's context.

        Turns share a connection only if the secrets in its configuration are equal, so that redactor suits them all.
        """
        self._keeper = asyncio.create_task(
            self._keep(current_redactor()), name=f"mcp-{self.name}", context=contextvars.Context()
        )

    async def ready(self, within_s: float | None = None) -> None:
        """Wait until it is open; it goes on to open if it is not in time.

        Raises:
            ConnectionError: The server does not answer, within `within_s` if given.
        """
        timeout_s = within_s or self._timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._opened.wait()
        except TimeoutError as error:
            raise ConnectionError(f"it did not answer within {timeout_s:g} s") from error
        if self._client is None:
            raise ConnectionError(_cause(self._failure)) from self._failure

    async def close(self) -> None:
        """Disconnect; a child process is terminated, forcibly if necessary."""
        self._closing.set()
        self._end_calls("the connection closed")
        if self._keeper is not None:
            if not self._opened.is_set():
                self._keeper.cancel()
            await asyncio.wait((self._keeper,))

    async def list_tools(self, timeout_s: float | None = None) -> list[Tool]:
        """Return the server's tools in the server's order.

        Raises:
            ConnectionError: The server does not answer (within `timeout_s` if given), or not in terms of MCP.
        """
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s):
                return await self._in_own_task(self._list_tools(), "list")
        except TimeoutError as error:
            raise ConnectionError("it did not say in time which tools it has") from error
        except (MCPError, ConnectionError) as error:
            raise ConnectionError(str(error)) from error
        except Exception as error:
            # A server is foreign code, and the client may raise anything for an invalid answer: the turn goes without
            # its tools.
            raise ConnectionError(f"it does not say which tools it has: {_cause(error)}") from error

    async def call(
        self,
        tool: str,
        arguments: JsonObject,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        *,
        call_id: str | None = None,
        meta: JsonObject | None = None,
    ) -> CallToolResult:
        """Call a tool. An in-process server gets `call_id` with the request, any other `meta`.

        After a call that times out, the server is probed. If it does not answer the probe either, it is blocked: all
        its pending calls end at once, and the connection is lost.

        Raises:
            ConnectionError: The connection is lost.
            TimeoutError: The tool did not answer in time; the server still does.
            MCPError: The server refused.
        """
        client = self._require_client()
        if isinstance(self._server, InProcessMcpServer):
            named: RequestParamsMeta | None = None if call_id is None else {CALL_ID: call_id}
            return await client.call_tool(tool, arguments, timeout_s, on_progress, meta=named)
        given: Any = meta
        calling = client.call_tool(tool, arguments, timeout_s, on_progress, meta=given)
        try:
            # The client's own timeout does not cover writing the request, which a blocked server delays.
            async with asyncio.timeout(timeout_s):
                return await self._in_own_task(calling, tool)
        except TimeoutError as error:
            await self._check_answers(timeout_s)
            raise TimeoutError(f"it timed out after {timeout_s:g} s") from error
        except MCPError as error:
            # The client's code for a closed connection. A server may use the same number for its own errors.
            if error.code == CONNECTION_CLOSED and not await self._is_open():
                self._broken = True
                raise ConnectionError("the connection closed") from error
            raise

    async def ask_agent(
        self, request: AgentRequest, context: CallContext | None, report: ReportText | None
    ) -> AgentSaid:
        """Ask an agent of the process. See `AgentLane.ask`.

        Raises:
            ConnectionError: The connection is lost.
        """
        try:
            return await self._agents.ask(request, context, report)
        except ConnectionError:
            # The end of its input may be seen before that of its output.
            self._broken = True
            raise

    async def _is_open(self) -> bool:
        try:
            await self._probe()
        except TimeoutError:
            # On a closed connection a request fails at once.
            return True
        except (MCPError, ConnectionError):
            return False
        return True

    async def _check_answers(self, timeout_s: float | None) -> None:
        try:
            await self._probe()
        except TimeoutError as error:
            self._not_answering = (
                f"the server does not answer: a call took longer than {timeout_s:g} s and a check longer than "
                f"{_PROBE_TIMEOUT_S:g} s. It is not asked again in this turn; the next turn starts it anew."
            )
            _log.warning("mcp_server_blocked", server=self.name)
            self._end_calls(self._not_answering)
            raise ConnectionError(self._not_answering) from error
        except MCPError:
            # An error is an answer, too.
            return

    async def _probe(self) -> None:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            await self._in_own_task(self._require_client().list_tools(cache_mode="bypass"), "probe")

    @property
    def _timeout_s(self) -> float | None:
        return None if isinstance(self._server, InProcessMcpServer) else self._server.timeout_s

    async def _list_tools(self) -> list[Tool]:
        tools: list[Tool] = []
        size_bytes = 0
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self._require_client().list_tools(cursor=cursor)
            tools += page.tools
            if len(tools) > _MAX_TOOLS:
                raise ConnectionError(f"it has more than {_MAX_TOOLS} tools")
            # Not as JSON, which has no form for what some servers send: lone surrogates.
            size_bytes += sum(len(repr(tool)) for tool in page.tools)
            if size_bytes > _MAX_TOOLS_BYTES:
                raise ConnectionError(f"its tools' definitions are longer than {_MAX_TOOLS_BYTES} bytes")
            self._results.update(_result_schemas(page.tools))
            cursor = page.next_cursor
            if cursor is None:
                return tools
        raise ConnectionError(f"it lists its tools in more than {_MAX_PAGES} pages")

    async def _check_result(self, name: str, result: CallToolResult) -> None:
        """Check a structured result in place of the MCP client, which does it without a bound on time."""
        schema = self._results.get(name)
        for problem in () if schema is None else await schema.problems(result.structured_content):
            raise RuntimeError(
                f"the result does not fulfil the schema of the tool's results: at {problem.place}: {problem.message}"
            )

    async def _in_own_task(self, calling: Coroutine[Any, Any, _Result], what: str) -> _Result:
        call = asyncio.create_task(calling, name=f"mcp-{self.name}-{what}")
        self._calls.add(call)
        call.add_done_callback(self._forget)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if call.cancelled() and caller is not None and not caller.cancelling():
                raise ConnectionError(self._not_answering or "the connection closed") from None
            call.cancel()
            raise

    def _end_calls(self, reason: str) -> None:
        self._agents.close(reason)
        for call in tuple(self._calls):
            call.cancel()

    def _forget(self, call: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            # The caller has the exception, but a canceled caller does not retrieve it.
            call.exception()

    def _require_client(self) -> Client:
        if self._client is None:
            raise ConnectionError("it is not connected")
        return self._client

    def _on_end(self) -> None:
        # Otherwise the next call would notice, and could not know whether it was made.
        self._broken = True
        self._agents.close("the connection closed")

    async def _keep(self, redactor: Redactor | None) -> None:
        with hiding(Redactor() if redactor is None else redactor):
            try:
                async with _client(
                    self.name,
                    self._server,
                    self._make_transport,
                    self._sandbox,
                    self._output,
                    lane=self._agents,
                    on_end=self._on_end,
                ) as client:
                    client.session.validate_tool_result = self._check_result
                    self._client = client
                    self._opened.set()
                    await self._closing.wait()
            except Exception as error:
                # Pending calls get their own errors, and `ready` raises this one.
                self._failure = error
                if self._opened.is_set():
                    _log.warning("mcp_server_lost", server=self.name, exc_info=True)
            finally:
                self._client = None
                self._agents.close("the connection closed")
                self._opened.set()


@asynccontextmanager
async def _client(
    name: str,
    server: McpServer,
    make_transport: MakeTransport | None,
    sandbox: ShellSandbox | NoSandbox | None,
    output: LastLines,
    *,
    lane: AgentLane,
    on_end: Callable[[], None],
) -> AsyncGenerator[Client]:
    async with AsyncExitStack() as stack:
        match server:
            case InProcessMcpServer():
                built = server.built()
                # It would trace calls, each of which has a span of its turn.
                built.middleware.clear()
                # A new client does not benefit from a response cache.
                client = Client(built, cache=None)
            case StdioMcpServer():
                errors = await stack.enter_async_context(logged_output(name, output))
                transport = tolerant(stdio_transport(server, errors, sandbox, lane=lane, on_end=on_end))
                client = Client(transport, read_timeout_seconds=server.timeout_s, cache=None)
            case HttpMcpServer():
                timeout = httpx2.Timeout(server.timeout_s, read=max(server.timeout_s, _STREAM_READ_TIMEOUT_S))
                guarded = None if make_transport is None else make_transport()
                http = await stack.enter_async_context(
                    httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout, transport=guarded)
                )
                bound_responses(http, ResponseBounds())
                transport = tolerant(streamable_http_client(server.url, http_client=http))
                client = Client(transport, read_timeout_seconds=server.timeout_s, cache=None)
        yield await stack.enter_async_context(client)


def _result_schemas(tools: Iterable[Tool]) -> Iterator[tuple[str, JsonSchema]]:
    """Yield the schemas of tools' results. One that is not accepted is a claim that is left unchecked."""
    for tool in tools:
        if tool.output_schema is not None:
            with suppress(InvalidSchema):
                yield tool.name, JsonSchema(tool.output_schema)


def _cause(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
