"""Speaks MCP for the tools, agents, effects and evaluators of a process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, TextIO

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import Server, ServerRequestContext
from mcp.shared.message import SessionMessage
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from nova_workers.base.errors import ToolFailure
from nova_workers.base.release import release
from nova_workers.contracts.ended_runs import EFFECT_CALL
from nova_workers.contracts.judged_answers import EVALUATOR_CALL
from nova_workers.contracts.user_tools import CALL_CONTEXT, QUESTION, RETIRES, CallContext
from nova_workers.sdk.agent_calls import AgentCalls
from nova_workers.sdk.context import Asked, ToolContext
from nova_workers.sdk.execution import Execution
from nova_workers.sdk.loading import UserCode, UserTool
from nova_workers.sdk.sessions import Sessions

_MAX_LINE_BYTES: Final = 16_000_000
_WAITING: Final = 64
"""Messages between the wire and the session."""
_MAX_RESULT_BYTES = 4_000_000
"""More than any model reads; half of what a worker takes in one line."""


def serve(name: str, code: UserCode, given: TextIO, taken: TextIO) -> None:
    """Serve tools, agents, effects and evaluators until the input ends."""
    # The library reports each request and each failed call; failures are reported with their place already.
    logging.getLogger("mcp").setLevel(logging.WARNING)
    asyncio.run(_serve(name, code, given, taken))


async def _serve(name: str, code: UserCode, given: TextIO, taken: TextIO) -> None:
    execution, tools = Execution(), code.tools
    unlisted = {
        **{f"{EFFECT_CALL}{name}": effect for name, effect in code.effects.items()},
        **{f"{EVALUATOR_CALL}{name}": judge for name, judge in code.evaluators.items()},
    }
    agents = AgentCalls(Sessions(code.agents, execution), execution, lambda line: _write(taken, line))
    listing = ListToolsResult(tools=[_describe(tool) for tool in tools.values()])

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return listing

    async def call_tool(request: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        known = unlisted if params.name.startswith((EFFECT_CALL, EVALUATOR_CALL)) else tools
        result = await _call(execution, known, request, params)
        if execution.stuck:
            result.meta = {**(result.meta or {}), RETIRES: True}
        return result

    server: Server[Any] = Server(name, version=release(), on_list_tools=list_tools, on_call_tool=call_tool)
    async with _wire(given, taken, agents) as (read, write):
        await server.run(read, write, server.create_initialization_options())


@asynccontextmanager
async def _wire(
    given: TextIO, taken: TextIO, agents: AgentCalls
) -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """Carry messages between the session and a pipe each way; what is about agents goes past the session.

    In place of the library's transport, which passes each line to a thread and back: a third of the time of a call.
    """
    incoming, to_session = anyio.create_memory_object_stream[SessionMessage | Exception](_WAITING)
    from_session, outgoing = anyio.create_memory_object_stream[SessionMessage](_WAITING)
    reader = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), given)

    async def read() -> None:
        async with incoming:
            while line := await reader.readline():
                if agents.take(line):
                    continue
                try:
                    message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except ValueError as error:
                    await incoming.send(error)
                else:
                    await incoming.send(message)

    async def write() -> None:
        async for message in outgoing:
            _write(taken, message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        yield to_session, from_session
        tasks.cancel_scope.cancel()


def _write(taken: TextIO, line: bytes) -> None:
    # A write that waits for its reader delays nothing else that the reader could get.
    taken.buffer.write(line)
    taken.buffer.flush()


async def _call(
    execution: Execution,
    tools: dict[str, UserTool],
    request: ServerRequestContext[Any],
    params: CallToolRequestParams,
) -> CallToolResult:
    tool = tools.get(params.name)
    if tool is None:
        return _error(f"There is no tool {params.name!r}; there are {', '.join(tools) or 'none'}.")
    meta: dict[str, Any] = dict(params.meta or {})
    about = CallContext.model_validate(meta.get(CALL_CONTEXT) or {})
    context = ToolContext(
        **dict(about), timeout_s=tool.options.timeout_s, report=_Reports(request).report, tool=tool.name
    )
    try:
        return _result(tool, await execution.call(tool, params.arguments or {}, context))
    except ToolFailure as error:
        return _error(error.message)
    except Asked as asked:
        if not about.run_id:
            return _error(f"{tool.name} asks a person, for whom only a run of a fleet can wait: {asked}")
        return CallToolResult(content=[], _meta={QUESTION: dict(asked.question)})


class _Reports:
    """Sends progress from any thread: one report at a time, of several that wait the last."""

    def __init__(self, request: ServerRequestContext[Any]) -> None:
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._next: tuple[float, float | None, str | None] | None = None
        self._sending: asyncio.Task[None] | None = None

    def report(self, done: float, total: float | None, message: str | None) -> None:
        self._next = done, total, message
        self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._next is not None:
            report, self._next = self._next, None
            await self._request.session.report_progress(*report)


def _describe(tool: UserTool) -> Tool:
    options = tool.options
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=ToolAnnotations(
            read_only_hint=options.read_only, idempotent_hint=options.idempotent or options.read_only
        ),
    )


def _result(tool: UserTool, value: Any) -> CallToolResult:
    if isinstance(value, CallToolResult):
        return value
    if isinstance(value, str):
        text = value
    elif value is None:
        text = "Done."
    else:
        try:
            text = to_json(value).decode()
        except (PydanticSerializationError, ValueError) as error:
            raise ToolFailure(
                f"{tool.name} returned a {type(value).__name__} that is no JSON ({error}); expected text, None, or "
                f"values of JSON. See {tool.place}. The call was made."
            ) from error
    if len(text.encode(errors="replace")) > _MAX_RESULT_BYTES:
        raise ToolFailure(
            f"{tool.name} returned more than {_MAX_RESULT_BYTES:,} bytes; expected less. See {tool.place}. "
            "The call was made."
        )
    structured = value.model_dump(mode="json") if isinstance(value, BaseModel) else None
    return CallToolResult(content=[TextContent(text=text)], structured_content=structured)


def _error(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
