"""Serves tools of users as an MCP server of this process, whose calls go to a process of their source."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Any, Final

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

from nova_workers.base.errors import ToolFailure
from nova_workers.base.observability.redaction import current_redactor
from nova_workers.base.release import release
from nova_workers.contracts.engine import CALL_ID, DEFERRAL, InProcessMcpServer
from nova_workers.contracts.tool_programs import ToolPrograms
from nova_workers.contracts.user_tools import QUESTION, CallContext, GivenAnswer, ListedTool
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.capabilities.rules.seam import UserServer

_MOST_QUESTIONS: Final = 50
"""The bound on questions of one call: each of them makes the call again from its beginning."""

FindAnswers = Callable[[str, str], Awaitable[tuple[GivenAnswer, ...]]]
"""Returns the answers to what a call has asked a person, by its tool and its id; waits for the database."""


def user_server(declared: UserServer, programs: ToolPrograms, find_answers: FindAnswers) -> InProcessMcpServer:
    """Return a server whose tools work for the run in the declaration."""
    listing = [_describe(tool.model_dump_json()) for tool in declared.tools]
    return InProcessMcpServer(partial(_build, declared, programs, find_answers, listing), listing=listing)


def _build(declared: UserServer, programs: ToolPrograms, find_answers: FindAnswers, listing: list[Tool]) -> Server[Any]:
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
            directory=run.cwd,
            secrets=dict(declared.secrets),
            answers=() if call_id is None else await find_answers(tool.name, str(call_id)),
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
        if (question := (result.meta or {}).get(QUESTION)) is not None:
            if len(context.answers) >= _MOST_QUESTIONS:
                return _error(f"{tool.name} asked a person more than {_MOST_QUESTIONS} times. See {tool.place}.")
            return _deferred(tool, question)
        # Without what the process may have put beside it: what an in-process tool says there is believed.
        return CallToolResult(
            content=result.content, structured_content=result.structured_content, is_error=result.is_error
        )

    return Server(declared.source.name, version=release(), on_list_tools=list_tools, on_call_tool=call_tool)


def _deferred(tool: ListedTool, question: Any) -> CallToolResult:
    """Return the result of a call that waits for a person's answer, with which it is made again."""
    try:
        asked = AskUser.model_validate({**question, "repeats_call": True})
    except (ValidationError, TypeError) as error:
        return _error(f"{tool.name} asked a person in a form that is none ({error}). See {tool.place}.")
    return CallToolResult(content=[], _meta={DEFERRAL: asked.model_dump(mode="json")})


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
