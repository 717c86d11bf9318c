"""MCP servers that are not of this process: they work, and when they die the turn does not."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import text_of
from nova_workers.contracts.engine import (
    EngineOptions,
    EngineResult,
    HttpMcpServer,
    McpServer,
    StdioMcpServer,
)
from nova_workers.engines.scripted import ScriptedEngine

Json = dict[str, Any]

CHILD = StdioMcpServer(
    command=sys.executable, args=("-m", "tests.support.mcp_stdio_server"), env={"GREETING": "Hello "}, cwd=os.getcwd()
)


async def _play(servers: Mapping[str, McpServer], *tools: Json, abort: AbortSignal | None = None) -> EngineResult:
    script: list[Json] = [{"tool": tool} for tool in tools] + [{"say": "End"}]
    options = EngineOptions(mcp_servers=servers, engine_config={"script": script})
    engine = ScriptedEngine(environment="development")
    return await asyncio.wait_for(engine.run("go", options, "sandbox", abort=abort), 60)


async def test_a_child_process_serves_tools_and_ends_with_the_turn() -> None:
    result = await _play({"child": CHILD}, {"name": "echo", "input": {"text": "world"}}, {"name": "pid"})
    assert text_of(result.tool_calls[0].result or ()) == "Hello world"
    pid = int(text_of(result.tool_calls[1].result or ()))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert result.text == "End"


async def test_a_child_that_dies_is_a_tool_error_and_not_a_dead_turn() -> None:
    result = await _play({"child": CHILD}, {"name": "die"}, {"name": "echo", "input": {"text": "x"}})
    assert [call.status for call in result.tool_calls] == ["failed", "failed"]
    assert (result.stop_reason, result.text) == ("end_turn", "End")


async def test_a_command_that_does_not_exist_fails_the_turn_with_the_servers_name() -> None:
    result = await _play({"child": StdioMcpServer(command="/does/not/exist")}, {"name": "echo"})
    assert result.error is not None
    assert "'child' cannot be reached" in result.error.message
    assert result.error.retryable


async def test_a_child_that_says_nothing_is_given_up() -> None:
    mute = StdioMcpServer(command="sleep", args=("60",), timeout_s=0.5)
    result = await _play({"mute": mute}, {"name": "echo"})
    assert result.error is not None
    assert "'mute' cannot be reached" in result.error.message


async def test_an_abort_while_connecting_stops_the_child() -> None:
    abort = AbortSignal()
    asyncio.get_running_loop().call_later(0.3, abort.abort, "cancel")
    result = await _play({"mute": StdioMcpServer(command="sleep", args=("60",))}, {"name": "echo"}, abort=abort)
    assert result.stop_reason == "aborted"


@pytest.fixture
async def http_url() -> AsyncIterator[str]:
    server = MCPServer("http")

    @server.tool()
    async def secret(ctx: Context[Any]) -> str:
        """Show the header."""
        return str((ctx.headers or {}).get("x-secret"))

    @server.tool()
    async def hang() -> str:
        """Never answer."""
        await asyncio.sleep(60)
        return "late"

    config = uvicorn.Config(server.streamable_http_app(), host="127.0.0.1", port=0, log_level="critical")
    web = uvicorn.Server(config)
    task = asyncio.create_task(web.serve())
    while not web.started:  # noqa: ASYNC110 - uvicorn has a flag and no event
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}/mcp"
    web.should_exit = web.force_exit = True
    await task


async def test_an_http_server_gets_its_headers(http_url: str) -> None:
    result = await _play({"web": HttpMcpServer(http_url, headers={"x-secret": "s3"})}, {"name": "secret"})
    assert text_of(result.tool_calls[0].result or ()) == "s3"


async def test_an_http_server_that_hangs_is_a_tool_error(http_url: str) -> None:
    result = await _play({"web": HttpMcpServer(http_url, timeout_s=0.5)}, {"name": "hang"})
    assert result.tool_calls[0].status == "failed"
    assert result.text == "End"
