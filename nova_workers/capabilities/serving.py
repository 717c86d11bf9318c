"""Serves declared tools as an MCP server of this process.

On the low-level `Server`: building one costs 6 µs, so that each run gets its own, bound to its context by closure;
`MCPServer` with three tools costs 3.6 ms, since it derives schemas from signatures each time (measured). The tools'
schemas are derived here once, when the process starts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

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
from pydantic import BaseModel, ValidationError

from nova_workers.capabilities.seam import (
    CapabilityContext,
    NoConfig,
    Servers,
    ToolDeclaration,
    ToolReply,
    input_schema,
)
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import DEFERRAL, InProcessMcpServer
from nova_workers.errors import NovaError
from nova_workers.observability.redaction import current_redactor

__all__ = ["ToolCapability", "ToolServing"]

_log = structlog.get_logger(__name__)


class ToolCapability:
    """A capability whose tools are served by this process: all that most capabilities are."""

    def __init__(
        self,
        name: str,
        description: str,
        tools: Sequence[ToolDeclaration[Any]],
        *,
        config: type[BaseModel] = NoConfig,
        injected: Callable[[CapabilityContext], bool] | None = None,
    ) -> None:
        """Describe the tools once; runs are then served without further work.

        Args:
            name: The key under which agents are granted it.
            description: One sentence, for those who choose.
            tools: All its tools.
            config: The form of a grant's configuration. The tools find it in their context.
            injected: For a capability that is never granted: which runs get it.
        """
        self.name = name
        self.description = description
        self.config = config
        self.tools = tuple(tools)
        self.injected = injected
        self._serving = ToolServing(name, self.tools)

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return the server for one run."""
        return self._serving.server_for(replace(context, config=config))


class ToolServing:
    """The tools of one capability, ready to be served to any number of runs at the same time."""

    def __init__(self, name: str, tools: Sequence[ToolDeclaration[Any]]) -> None:
        self._name = name
        self._tools = {tool.name: tool for tool in tools}
        self._listing = ListToolsResult(tools=[_describe(tool) for tool in tools])

    def server_for(self, context: CapabilityContext) -> InProcessMcpServer:
        """Return a server whose tools work for `context`."""

        async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
            return self._listing

        async def call_tool(_: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
            return await self._call(context, params.name, params.arguments or {})

        server = Server(self._name, on_list_tools=list_tools, on_call_tool=call_tool)
        return InProcessMcpServer(server, listing=self._listing.tools)

    async def _call(self, context: CapabilityContext, name: str, arguments: JsonObject) -> CallToolResult:
        tool = self._tools.get(name)
        if tool is None:
            return _error(f"{self._name} has no tool {name!r}; it has {', '.join(self._tools)}.")
        redactor = current_redactor()
        if redactor is not None and not tool.takes_secrets:
            arguments = redactor.json(arguments)
        try:
            given = tool.input.model_validate(arguments)
        except ValidationError as error:
            return _error(_explain(name, error))
        try:
            return _result(await tool.run(context, given))
        except NovaError as error:
            return _error(error.message)
        except Exception:
            # The head of a tool: a bug in it must not end the turn, nor show the model our insides.
            _log.exception("tool_crashed", tool=name, run_id=context.run_id)
            return _error(f"{name} failed for a reason of its own. Trying again is not likely to help.")


def _describe(tool: ToolDeclaration[Any]) -> Tool:
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=input_schema(tool.input),
        annotations=ToolAnnotations(read_only_hint=tool.read_only, idempotent_hint=tool.idempotent),
    )


def _result(reply: ToolReply) -> CallToolResult:
    if isinstance(reply, CallToolResult):
        return reply
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
