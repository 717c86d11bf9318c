"""Serves tools of users as an MCP server of this process, whose calls go to a process of their source."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

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

from nova_workers.base.errors import ToolFailure
from nova_workers.base.observability.redaction import current_redactor
from nova_workers.base.release import release
from nova_workers.contracts.engine import CALL_ID, InProcessMcpServer
from nova_workers.contracts.tool_programs import ToolPrograms
from nova_workers.contracts.user_tools import CallContext, ListedTool
from nova_workers.domain.capabilities.rules.seam import UserServer


def user_server(declared: UserServer, programs: ToolPrograms) -> InProcessMcpServer:
    """Return a server whose tools work for the run in the declaration."""
    listing = [_describe(tool.model_dump_json()) for tool in declared.tools]
    return InProcessMcpServer(partial(_build, declared, programs, listing), listing=listing)


def _build(declared: UserServer, programs: ToolPrograms, listing: list[Tool]) -> Server[Any]:
    tools = {tool.name: tool for tool in declared.tools}
    run = declared.context

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=listing)

    async def call_tool(request: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool, arguments, redactor = tools.get(params.name), params.arguments or {}, current_redactor()
        if tool is None:
            return _error(f"{declared.source.name} has no tool {params.name!r}; it has {', '.join(tools)}.")
        call_id = (params.meta or {}).get(CALL_ID)
        context = CallContext(
            tenant_id=run.tenant_id,
            agent_id=run.agent_id,
            thread_id=run.thread_id,
            run_id=run.run_id,
            # The model's id of the call stays the same when another worker makes it again.
            idempotency_key=None if call_id is None else f"{run.run_id}:{call_id}",
            secrets=dict(declared.secrets),
        )
        try:
            result = await programs.call(
                declared.source,
                tool,
                arguments if redactor is None else redactor.json(arguments),
                context,
                enclosure=run.enclosure,
                report=request.session.report_progress,
            )
        except ToolFailure as error:
            return _error(error.message)
        # Without what the process may have put beside it: what an in-process tool says there is believed.
        return CallToolResult(
            content=result.content, structured_content=result.structured_content, is_error=result.is_error
        )

    return Server(declared.source.name, version=release(), on_list_tools=list_tools, on_call_tool=call_tool)


@cache
def _describe(listed: str) -> Tool:
    tool = ListedTool.model_validate_json(listed)
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=ToolAnnotations(read_only_hint=tool.read_only, idempotent_hint=tool.idempotent),
    )


def _error(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
