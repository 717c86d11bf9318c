"""The names of servers' tools for the model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp.server import Server
from mcp.types import Tool

from nova_workers.contracts.engine import InProcessMcpServer, McpServer, StdioMcpServer
from nova_workers.contracts.native import TAKEN_NAMES
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.toolbox import Toolbox

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


async def test_expired_entries_of_unused_servers_are_removed() -> None:
    pool = ConnectionPool(avoid_s=0.0)
    for number in range(3):
        with pytest.raises(ConnectionError):
            await pool.take("away", StdioMcpServer("/no/such", args=(str(number),)))
    assert len(pool._avoided) == 1  # pyright: ignore[reportPrivateUsage] - nothing else tells
    await pool.close()
