"""MCP servers that try to exhaust a worker."""

import asyncio
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nova_workers import child_process
from nova_workers.contracts.engine import StdioMcpServer
from nova_workers.engines.mcp.connection import ServerConnection

_MAX_LATE_S = 5.0
"""A busy machine delays a loop by a second; a line of 300 MB held it for minutes."""


def _hostile(mode: str) -> StdioMcpServer:
    return StdioMcpServer(
        sys.executable, ("-m", "tests.support.servers.mcp_hostile_server", mode), cwd=os.getcwd(), timeout_s=20.0
    )


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
async def test_a_server_with_too_many_tools_is_refused(mode: str) -> None:
    connection = ServerConnection("hostile", _hostile(mode))
    connection.start()
    try:
        await connection.ready()
        with pytest.raises(ConnectionError, match=r"more than 1000 tools|more than 100 pages"):
            await connection.list_tools()
    finally:
        await connection.close()


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
        async with asyncio.timeout(15):
            await connection.close()
    finally:
        os.kill(child, signal.SIGKILL)


async def test_a_line_without_end_ends_the_connection_and_others_are_served() -> None:
    connection = ServerConnection("hostile", _hostile("line"))
    connection.start()
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    late_s: list[float] = []
    watcher = asyncio.create_task(_watch(late_s))
    try:
        await connection.ready()
        with pytest.raises(ConnectionError):
            await connection.call("work", {}, timeout_s=20)
        assert connection.lost
    finally:
        await connection.close()
        watcher.cancel()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 100_000
    assert max(late_s) < _MAX_LATE_S


async def test_messages_without_end_let_others_run_and_end_with_the_connection() -> None:
    connection = ServerConnection("hostile", _hostile("flood"))
    connection.start()
    late_s: list[float] = []
    watcher = asyncio.create_task(_watch(late_s))
    try:
        await connection.ready()
        with pytest.raises((ConnectionError, TimeoutError)):
            await connection.call("work", {}, timeout_s=2)
    finally:
        begun_s = time.monotonic()
        await connection.close()
        watcher.cancel()
    assert time.monotonic() - begun_s < 10
    assert max(late_s) < _MAX_LATE_S


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


async def _watch(late_s: list[float]) -> None:
    """Note how late the loop runs what is due."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + 0.01
        reached = asyncio.Event()
        loop.call_at(due_s, reached.set)
        await reached.wait()
        late_s.append(loop.time() - due_s)
