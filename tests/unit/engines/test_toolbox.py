"""The names of servers' tools for the model."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp.server import Server
from mcp.types import Tool

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.engine import InProcessMcpServer, McpServer, StdioMcpServer, ToolCall
from nova_workers.contracts.native import TAKEN_NAMES
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.toolbox import Toolbox
from nova_workers.engines.tool_schemas import ToolLimits
from tests.requirements import proves
from tests.support.harness.manual_clock import ManualClock

LONG = "x" * 200


def ours(*names: str) -> InProcessMcpServer:
    return InProcessMcpServer(Server[Any]("s"), listing=[_tool(name) for name in names])


def _tool(name: str) -> Tool:
    return Tool(name=name, description=name, input_schema={"type": "object"})


@pytest.fixture
async def pool() -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool()
    yield pool
    await pool.close()


async def names(pool: ConnectionPool, **servers: McpServer) -> dict[str, str]:
    """Return the tools' own names by those that the model knows."""
    toolbox = Toolbox(servers, pool=pool)
    tools = await toolbox.connect()
    await toolbox.close()
    return {name: tool.description for name, tool in tools.items()}


async def test_names_that_become_equal_stay_distinct(pool: ConnectionPool) -> None:
    assert await names(pool, s=ours("a.b", "a b", "a_b", "a-b")) == {
        "a_b": "a.b",
        "s__a_b": "a b",
        "s__a_b_2": "a_b",
        "a-b": "a-b",
    }


async def test_a_rule_also_matches_a_servers_own_tool_name(pool: ConnectionPool) -> None:
    servers = {"one": ours("x", "two__x"), "two": ours("x"), "t o": ours("x"), "t.o": ours("x")}
    assert await names(pool, **servers) == {
        "x": "x",
        "two__x": "two__x",
        "two__x_2": "x",
        "t_o__x": "x",
        "t_o__x_2": "x",
    }


async def test_truncated_names_stay_distinct(pool: ConnectionPool) -> None:
    found = await names(pool, s=ours(*(LONG + str(number) for number in range(12))))
    assert list(found.values()) == [LONG + str(number) for number in range(12)]
    assert {len(name) for name in found} == {117}
    assert [name[-3:] for name in found][-2:] == ["_10", "_11"]


@pytest.mark.parametrize("name", sorted(TAKEN_NAMES))
async def test_no_tool_has_a_name_that_means_another(pool: ConnectionPool, name: str) -> None:
    assert await names(pool, s=ours(name)) == {f"s__{name}": name}


async def test_a_tool_without_a_name_has_one(pool: ConnectionPool) -> None:
    assert await names(pool, s=ours("")) == {"s__": ""}


async def test_failures_of_servers_that_are_not_tried_again_are_forgotten() -> None:
    clock = ManualClock()
    pool = ConnectionPool(clock_s=clock.monotonic_s)
    for number in range(3):
        with pytest.raises(ConnectionError):
            await pool.take("away", StdioMcpServer("/no/such", args=(str(number),)), 10.0)
        clock.advance(3_600.0)
    assert len(pool._rests) == 1  # pyright: ignore[reportPrivateUsage] - nothing else tells
    await pool.close()


@proves("engine.tool-schemas")
async def test_tools_beyond_the_providers_limits_are_left_out_and_those_of_the_fleet_last(pool: ConnectionPool) -> None:
    child = StdioMcpServer(sys.executable, ("-m", "tests.support.servers.mcp_stdio_server"), cwd=os.getcwd())
    toolbox = Toolbox({"child": child, "s": ours("a", "b", "c")}, pool=pool, limits=ToolLimits(max_tools=4))
    try:
        tools = await toolbox.connect()
        assert list(tools)[1:] == ["a", "b", "c"]
        assert len(tools) == 4
        assert {tool.why for tool in toolbox.left_out} == {"the model provider takes at most 4 tools"}
        with pytest.raises(ToolFailure, match=f"There is no tool {toolbox.left_out[0].name!r}"):
            await toolbox.call(ToolCall("1", toolbox.left_out[0].name, {}, step=0, sequence=0))
    finally:
        await toolbox.close()


@proves("engine.tool-schemas")
async def test_definitions_that_are_too_long_together_are_left_out(pool: ConnectionPool) -> None:
    toolbox = Toolbox({"s": ours("a" * 100, "b", "c" * 100)}, pool=pool, limits=ToolLimits(max_total_bytes=300))
    assert list(await toolbox.connect()) == ["a" * 100, "b"]
    assert [tool.why for tool in toolbox.left_out] == ["all tools together are longer than 300 bytes"]
    await toolbox.close()
