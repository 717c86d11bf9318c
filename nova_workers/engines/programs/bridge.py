"""The turn's tools for a vendor's program: an MCP server on a Unix socket in the private home.

The program starts `relay`, which connects the program's pipes to the socket. The server runs no tool: each call goes
to the turn, which commits, authorizes and runs it like a call of any other engine, and the program gets the result once
the step is committed. So permissions, journal, waits, redaction and budgets are those of the turn, and headers and
environments of MCP servers never reach the program.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from mcp.server import Server
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    Tool,
    ToolAnnotations,
    jsonrpc_message_adapter,
)

from nova_workers.base.errors import EngineFailure
from nova_workers.base.release import release
from nova_workers.contracts.content import JsonObject, text_block
from nova_workers.engines.lines import read_lines
from nova_workers.engines.mcp.blocks import to_mcp_result
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.programs.frames import BridgeCall
from nova_workers.engines.programs.tool_server import SERVER
from nova_workers.engines.turn import ToolOutcome

_CALL_ID = "callId"
"""Where a request's metadata has the id of the model's call, if the program passes it on."""

_CLOSING_S = 2.0
_MAX_SOCKET_BYTES = 100
"""A little less than what a socket's address holds on every system."""
_STOPPED = ToolOutcome((text_block("The turn was stopped."),), failed=True)


def serve_tools(
    tools: Callable[[], Awaitable[Mapping[str, ToolDefinition]]],
    call: Callable[[CallToolRequestParams], Awaitable[ToolOutcome]],
    *,
    meta: JsonObject | None = None,
) -> Server[Any]:
    """Return the MCP server of a program with the turn's tools.

    Args:
        tools: Returns the tools by name.
        call: Makes a call.
        meta: What the program reads of each tool besides its definition.
    """

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.input_schema,
                    # Programs run the calls of a step concurrently, and without asking a person, only if all are
                    # declared read-only. Here the hint has no other effect: the turn decides what may run.
                    annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False),
                    _meta=meta,
                )
                for tool in (await tools()).values()
            ]
        )

    async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
        outcome = await call(params)
        return to_mcp_result(outcome.content, failed=outcome.failed)

    server: Server[Any] = Server(SERVER, version=release(), on_list_tools=list_tools, on_call_tool=call_tool)
    # It would trace calls, each of which has a span of its turn.
    server.middleware.clear()
    return server


class Bridge:
    """Serves the tools of one turn to one program. Must be closed."""

    def __init__(
        self, tools: Callable[[], Awaitable[Mapping[str, ToolDefinition]]], on_call: Callable[[BridgeCall], None]
    ) -> None:
        """Take the turn's tools.

        Args:
            tools: Returns the tools by name.
            on_call: Receives each call. It answers later with `BridgeCall.answer`.
        """
        self._on_call = on_call
        self._mcp = serve_tools(tools, self._call)
        self._listener: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._open_calls: set[BridgeCall] = set()

    async def open(self, path: Path) -> None:
        """Listen on a socket that only this user can connect to.

        Raises:
            EngineFailure: The path is too long.
            OSError: The socket cannot be made.
        """
        if len(os.fsencode(path)) > _MAX_SOCKET_BYTES:
            raise EngineFailure(
                f"The path {str(path)!r} is too long for a socket. Set TMPDIR of the workers to a shorter directory.",
                kind="unknown",
                retryable=False,
            )
        self._listener = await asyncio.start_unix_server(self._accept, path)
        await asyncio.to_thread(path.chmod, 0o600)

    async def close(self) -> None:
        """Disconnect the program, which has ended."""
        if self._listener is not None:
            self._listener.close()
        for call in tuple(self._open_calls):
            call.answer(_STOPPED)
        if self._links:
            # They end by themselves, since the other ends are closed.
            _, late = await asyncio.wait(self._links, timeout=_CLOSING_S)
            for link in late:
                link.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.create_task(self._serve(reader, writer), name="program-tools")
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with create_client_server_memory_streams() as ((answers, requests), (server_read, server_write)):

            async def read() -> None:
                try:
                    async for line in read_lines(reader):
                        with contextlib.suppress(ValueError):
                            # What is no message of the protocol has no id to answer to.
                            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                            await requests.send(SessionMessage(message))
                finally:
                    # The server ends when the program has disconnected.
                    await requests.aclose()

            async def write() -> None:
                async for answer in answers:
                    if isinstance(answer, SessionMessage):
                        text = answer.message.model_dump_json(by_alias=True, exclude_unset=True)
                        writer.write(text.encode() + b"\n")
                        await writer.drain()

            pumps = (asyncio.create_task(read()), asyncio.create_task(write()))
            try:
                await self._mcp.run(server_read, server_write, self._mcp.create_initialization_options())
            finally:
                for pump in pumps:
                    pump.cancel()
                # What goes wrong here is the end of the program, whose process reports why.
                await asyncio.gather(*pumps, return_exceptions=True)
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

    async def _call(self, params: CallToolRequestParams) -> ToolOutcome:
        meta: dict[str, Any] = dict(params.meta or {})
        given_id = meta.get(_CALL_ID)
        call_id = given_id if isinstance(given_id, str) and given_id else f"call_{secrets.token_hex(12)}"
        call = BridgeCall(call_id, params.name, params.arguments or {})
        self._open_calls.add(call)
        try:
            self._on_call(call)
            return await call.outcome
        finally:
            self._open_calls.discard(call)
