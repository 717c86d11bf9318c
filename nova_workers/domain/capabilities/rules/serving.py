"""Serves declared tools as an MCP server of this process.

It uses the low-level `Server`: building one costs 6 µs, so each run gets its own, bound to its context by closure;
`MCPServer` with three tools costs 3.6 ms, since it derives schemas from signatures each time (measured). It is built
when the run first calls one of its tools: a run has nine capabilities, and most turns call none. The tools' schemas are
derived here once, when the process starts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any, TypeVar

import structlog
from mcp.server import Server, ServerRequestContext
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from pydantic import ValidationError

from nova_workers.base.errors import ConfigurationError, NovaError, OutcomeUnknown, Unavailable
from nova_workers.base.observability.redaction import current_redactor
from nova_workers.base.release import release
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import CALL_ID, DEFERRAL, InProcessMcpServer
from nova_workers.contracts.tool_programs import ToolPrograms
from nova_workers.contracts.user_agents import AgentProgram
from nova_workers.contracts.user_tools import CallContext, GivenAnswer
from nova_workers.contracts.waits import CallClientTool
from nova_workers.domain.capabilities.rules.seam import (
    CapabilityContext,
    ClientServer,
    DeclaredServer,
    Servable,
    ToolDeclaration,
    ToolInput,
    ToolReply,
    UserAgentRun,
    UserServer,
    input_schema,
)
from nova_workers.domain.capabilities.rules.serving_user_tools import user_server
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.ledger.auditing import Actor, acting_as
from nova_workers.ledger.visibility import one_tenant

_log = structlog.get_logger(__name__)

T = TypeVar("T")

_PAUSES_S = (0.1, 0.5, 2.0, 5.0)
"""Between two tries of an idempotent tool, and between two questions for the result of a call in doubt."""


class ToolServer:
    """Makes MCP servers of declared tools. One object serves all runs of a process: listings are derived once."""

    def __init__(self, calls: CallTransactions, programs: ToolPrograms | None = None) -> None:
        """Take what executes calls.

        Args:
            calls: Opens the transactions of calls. The served tools must have its database.
            programs: Executes calls of tools of users; None in processes that have none.
        """
        self._calls = calls
        self._programs = programs
        self._listings: dict[tuple[str, tuple[str, ...]], ListToolsResult] = {}

    async def __call__(self, declared: Servable) -> InProcessMcpServer:
        """Return a server whose tools work for the run in the declaration."""
        if isinstance(declared, UserServer):
            if self._programs is None:
                raise ConfigurationError("This process runs no tools of users.")
            return user_server(declared, self._programs, partial(self._find_answers, declared.context))
        if isinstance(declared, ClientServer):
            return client_server(declared)
        # Which tools a server has may depend on the run.
        key = (declared.name, tuple(tool.name for tool in declared.tools))
        listing = self._listings.get(key)
        if listing is None:
            listing = ListToolsResult(tools=[_describe(tool) for tool in declared.tools])
            self._listings[key] = listing
        return InProcessMcpServer(partial(self._build, declared, listing), listing=listing.tools)

    def program(self, run: UserAgentRun) -> AgentProgram:
        """Return the function of an agent for one attempt at a turn."""
        if self._programs is None:
            raise ConfigurationError("This process executes no code of users.")
        context = CallContext(
            tenant_id=run.context.tenant_id,
            agent_id=run.context.agent_id,
            thread_id=run.context.thread_id,
            run_id=run.context.run_id,
            directory=run.context.cwd,
            secrets=dict(run.secrets),
        )
        return self._programs.agent(run.agent, context, enclosure=run.context.enclosure)

    def _build(self, declared: DeclaredServer, listing: ListToolsResult) -> Server[Any]:
        tools = {tool.name: tool for tool in declared.tools}

        async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
            return listing

        async def call_tool(_: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
            call_id = (params.meta or {}).get(CALL_ID)
            context = replace(
                declared.context, config=declared.config, call_id=None if call_id is None else str(call_id)
            )
            tool = tools.get(params.name)
            if tool is None:
                return _error(f"{declared.name} has no tool {params.name!r}; it has {', '.join(tools)}.")
            return await self._call(context, tool, params.arguments or {})

        return Server(declared.name, version=release(), on_list_tools=list_tools, on_call_tool=call_tool)

    async def _call(
        self, context: CapabilityContext, tool: ToolDeclaration[Any], arguments: JsonObject
    ) -> CallToolResult:
        redactor = current_redactor()
        if redactor is not None and not tool.takes_secrets:
            arguments = redactor.json(arguments)
        try:
            given = tool.input.model_validate(arguments)
        except ValidationError as error:
            return _error(_explain(tool.name, error))
        try:
            if tool.read_only:
                with one_tenant(context.tenant_id):
                    return _result(await _read(tool, context, given))
            with (
                one_tenant(context.tenant_id),
                acting_as(Actor("agent", context.agent_id, context.tenant_id, run_id=context.run_id)),
            ):
                return _result(await self._write(tool, context, given))
        except NovaError as error:
            return _error(error.message)
        except Exception:
            # The head of a tool: a bug in it must not end the turn, nor show the model our insides.
            _log.exception("tool_crashed", tool=tool.name, run_id=context.run_id)
            return _error(f"{tool.name} failed for a reason of its own. Trying again is not likely to help.")

    async def _write(self, tool: ToolDeclaration[Any], context: CapabilityContext, given: ToolInput) -> ToolReply:
        """Run a tool in a transaction; again while the database does not answer, if it then has no second effect."""
        doubt: Unavailable | None = None
        for pause_s in (*_PAUSES_S, None):
            call = None
            try:
                async with self._calls.open(context) as call:
                    reply = await tool.run(context, given)
                    call.result = reply if isinstance(reply, str) else None
                return reply
            except Unavailable as error:
                may_repeat = tool.is_repeatable
                if call is not None and isinstance(error, OutcomeUnknown):
                    doubt = error
                    if call.journalled and (result := await self._find_result(tool, context)) is not None:
                        return result
                    may_repeat = may_repeat and (tool.idempotent or call.journalled)
                if pause_s is None or not may_repeat:
                    # A later try that could not connect does not know of an earlier one that may be committed.
                    raise doubt or error from error
                _log_wait(tool.name, context, pause_s, error)
                await asyncio.sleep(pause_s)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _find_result(self, tool: ToolDeclaration[Any], context: CapabilityContext) -> str | None:
        """Return the result that a call in doubt has committed, if it has."""
        return await _once_answered(tool.name, context, lambda: self._calls.find_result(context))

    async def _find_answers(self, context: CapabilityContext, tool: str, call_id: str) -> tuple[GivenAnswer, ...]:
        """Return the answers of people to a call of a tool of users, in the order of its questions."""
        return await _once_answered(tool, context, lambda: self._calls.find_answers(context, call_id))


def client_server(declared: ClientServer) -> InProcessMcpServer:
    """Return a server of the tools that the caller of a run executes. A call has no effect before the run waits."""
    tools = {tool.name: tool for tool in declared.tools}
    hints = ToolAnnotations(idempotent_hint=True)
    listing = ListToolsResult(
        tools=[
            Tool(name=tool.name, description=tool.description, input_schema=tool.input_schema, annotations=hints)
            for tool in declared.tools
        ]
    )

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return listing

    async def call_tool(_: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool, arguments, redactor = tools[params.name], params.arguments or {}, current_redactor()
        if redactor is not None:
            arguments = redactor.json(arguments)
        return _result(
            CallClientTool(tool_name=tool.name, params=arguments, expires_in_s=tool.timeout_s, default=tool.default)
        )

    def build() -> Server[Any]:
        return Server("client", version=release(), on_list_tools=list_tools, on_call_tool=call_tool)

    return InProcessMcpServer(build, listing=listing.tools)


async def _read(tool: ToolDeclaration[Any], context: CapabilityContext, given: ToolInput) -> ToolReply:
    """Run a tool that changes nothing, again while the database does not answer."""
    for pause_s in _PAUSES_S if tool.idempotent else ():
        try:
            return await tool.run(context, given)
        except Unavailable as error:
            _log_wait(tool.name, context, pause_s, error)
            await asyncio.sleep(pause_s)
    return await tool.run(context, given)


async def _once_answered(tool: str, context: CapabilityContext, ask: Callable[[], Awaitable[T]]) -> T:
    """Return the answer of the database, asked until it gives one.

    The loss of the run's lease cancels the call, and with it this wait.
    """
    for pause_s in chain(_PAUSES_S, repeat(_PAUSES_S[-1])):
        try:
            return await ask()
        except Unavailable as error:
            _log_wait(tool, context, pause_s, error)
            await asyncio.sleep(pause_s)
    raise AssertionError("unreachable: the pauses do not end")


def _log_wait(tool: str, context: CapabilityContext, pause_s: float, error: Unavailable) -> None:
    _log.warning("tool_waits", outage="postgres", tool=tool, run_id=context.run_id, pause_s=pause_s, error=str(error))


def _describe(tool: ToolDeclaration[Any]) -> Tool:
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=input_schema(tool.input),
        annotations=ToolAnnotations(read_only_hint=tool.read_only, idempotent_hint=tool.is_repeatable),
    )


def _result(reply: ToolReply) -> CallToolResult:
    if isinstance(reply, str):
        return CallToolResult(content=[TextContent(text=reply)])
    return CallToolResult(content=[], _meta={DEFERRAL: reply.model_dump(mode="json")})


def _explain(name: str, error: ValidationError) -> str:
    problems = "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    )
    return f"{name} was called with arguments that it cannot use: {problems}"


def _error(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
