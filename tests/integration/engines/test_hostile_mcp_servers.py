"""MCP servers that try to exhaust a worker."""

import os
import sys
import time

import pytest

from nova_workers.contracts.engine import StdioMcpServer
from nova_workers.engines.mcp.connection import ServerConnection


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
