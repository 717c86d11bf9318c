"""MCP servers that try to exhaust a worker."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nova_workers.base import child_process
from nova_workers.contracts.engine import StdioMcpServer, ToolCall
from nova_workers.engines.mcp.connection import ServerConnection
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.toolbox import Toolbox
from tests.requirements import proves
from tests.support.loop_watch import watched_loop


def _hostile(mode: str) -> StdioMcpServer:
    return StdioMcpServer(
        sys.executable, ("-m", "tests.support.servers.mcp_hostile_server", mode), cwd=os.getcwd(), timeout_s=20.0
    )


@proves("security.mcp")
async def test_the_schema_of_a_tools_results_holds_the_loop_for_a_moment_at_most() -> None:
    connection = ServerConnection("hostile", _hostile("schema"))
    connection.start()
    try:
        await connection.ready()
        assert [tool.name for tool in await connection.list_tools()] == ["work"]
        begun_s = time.thread_time()
        with pytest.raises(RuntimeError, match=r"at \$\.text"):
            await connection.call("work", {})
        assert time.thread_time() - begun_s < 1.0
    finally:
        await connection.close()


@pytest.mark.parametrize("mode", ["tools", "pages"])
@proves("security.mcp")
async def test_a_server_with_too_many_tools_is_refused(mode: str) -> None:
    connection = ServerConnection("hostile", _hostile(mode))
    connection.start()
    try:
        await connection.ready()
        with pytest.raises(ConnectionError, match=r"more than 1000 tools|more than 100 pages"):
            await connection.list_tools()
    finally:
        await connection.close()


@proves("engine.tool-schemas")
async def test_a_tool_that_mcp_does_not_permit_costs_no_other_tool() -> None:
    pool = ConnectionPool()
    toolbox = Toolbox({"odd": _hostile("odd")}, pool=pool)
    try:
        tools = await toolbox.connect()
        assert {name: list(tool.input_schema["properties"]) for name, tool in tools.items()} == {
            "union": ["a", "b"],
            "text": [],
            "none": [],
            "properties": ["a_b"],
            "good": [],
        }
        assert (toolbox.left_out, toolbox.unreachable) == ((), ())
        assert toolbox.reads_only("good")
        assert not (await toolbox.call(ToolCall("1", "properties", {"a_b": 1}, step=0, sequence=0))).failed
    finally:
        await toolbox.close()
        await pool.close()


@proves("security.mcp")
async def test_a_schema_and_a_result_with_huge_numbers_cost_no_other_tool_and_no_crash() -> None:
    connection = ServerConnection("hostile", _hostile("number"))
    connection.start()
    try:
        await connection.ready()
        assert [tool.name for tool in await connection.list_tools()] == ["work", "other"]
        assert not (await connection.call("work", {})).is_error
        with pytest.raises(RuntimeError, match="cannot be written as JSON"):
            await connection.call("other", {})
    finally:
        await connection.close()


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the child by /proc")
@proves("security.mcp")
async def test_a_child_of_the_server_that_keeps_its_output_open_does_not_hold_the_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Where there is no supervisor, which ends such a child: on systems other than Linux.
    monkeypatch.setattr(child_process, "_SUPERVISED", False)
    connection = ServerConnection("hostile", _hostile("child"))
    connection.start()
    await connection.ready()
    child = int((await connection.call("work", {})).content[0].text)  # pyright: ignore[reportAttributeAccessIssue] - it is text
    try:
        async with asyncio.timeout(60):
            await connection.close()
    finally:
        os.kill(child, signal.SIGKILL)


@proves("security.mcp")
async def test_a_line_without_end_ends_the_connection_and_others_are_served() -> None:
    connection = ServerConnection("hostile", _hostile("line"))
    connection.start()
    async with watched_loop(max_grown_kb=100_000):
        try:
            await connection.ready()
            with pytest.raises(ConnectionError):
                await connection.call("work", {}, timeout_s=20)
            assert connection.lost
        finally:
            await connection.close()


@proves("security.mcp")
async def test_messages_without_end_let_others_run_and_end_with_the_connection() -> None:
    connection = ServerConnection("hostile", _hostile("flood"))
    connection.start()
    async with watched_loop():
        try:
            await connection.ready()
            with pytest.raises((ConnectionError, TimeoutError)):
                await connection.call("work", {}, timeout_s=2)
        finally:
            async with asyncio.timeout(60):
                await connection.close()


@proves("security.mcp")
async def test_a_log_without_end_is_cut_and_the_call_is_answered() -> None:
    connection = ServerConnection("hostile", _hostile("stderr"))
    with capture_logs() as logs:
        connection.start()
        try:
            await connection.ready()
            assert not (await connection.call("work", {}, timeout_s=20)).is_error
        finally:
            await connection.close()
    said = [entry for entry in logs if entry["event"] == "mcp_server_said"]
    assert sum(len(entry["line"]) for entry in said) <= 1_000_000
    assert any(entry["event"] == "mcp_server_said_too_much" for entry in logs)
