"""MCP servers that do not start cost one time-out; then turns go on without them, until they are tried again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nova_workers.base.observability.redaction import hiding
from nova_workers.base.observability.redactor import Redactor
from nova_workers.contracts.engine import HttpMcpServer, McpServer, StdioMcpServer
from nova_workers.engines.mcp.pool import ConnectionPool, ServerAway
from nova_workers.engines.mcp.toolbox import Toolbox
from tests.support.harness.manual_clock import ManualClock
from tests.support.waiting import pass_time, until

_SERVER = """
import json, os, select, sys
mode, file = sys.argv[1], sys.argv[2]
with open(file, "a") as starts:
    starts.write("x")
for number in range(7):
    print(f"line {number} key-of-mine", file=sys.stderr, flush=True)
if mode == "dies":
    sys.exit(3)
closed = select.poll()
closed.register(sys.stdin, select.POLLHUP)
while mode == "hangs" and not os.path.exists(file + ".go"):
    if closed.poll(20):
        sys.exit()
for line in sys.stdin:
    asked = json.loads(line)
    about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}}
    answers = {
        "initialize": {"protocolVersion": asked.get("params", {}).get("protocolVersion"), **about},
        "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
    }
    if mode == "lists nothing" and asked.get("method") == "tools/list":
        open(file + ".asked", "w").close()
        continue
    if "id" in asked:
        answer = {"error": {"code": -32601, "message": "no"}}
        if asked["method"] in answers:
            answer = {"result": answers[asked["method"]]}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""
_START_S = 60.0


@pytest.fixture
def starts(tmp_path: Path) -> str:
    """The file in which a server writes that it starts."""
    return str(tmp_path / "starts")


def _odd(mode: str, starts: str, **given: Any) -> StdioMcpServer:
    return StdioMcpServer(sys.executable, ("-I", "-S", "-c", _SERVER, mode, starts), **given)


def _count(starts: str) -> int:
    file = Path(starts)
    return len(file.read_text()) if file.exists() else 0


def _let_go(starts: str, *, go: bool = True) -> None:
    """Let servers that hang go on, or hang again."""
    file = Path(f"{starts}.go")
    if go:
        file.touch()
    else:
        file.unlink()


@asynccontextmanager
async def _pool(clock: ManualClock | None = None) -> AsyncGenerator[ConnectionPool]:
    pool = ConnectionPool(start_timeout_s=_START_S, rest_s=10.0, clock_s=(clock or ManualClock()).monotonic_s)
    try:
        yield pool
    finally:
        await pool.close()


async def _turn(pool: ConnectionPool, **servers: McpServer) -> tuple[set[str], dict[str, str], float]:
    """Return the tools of a turn, the reasons of servers that are away, and how many seconds it waited."""
    toolbox, loop = Toolbox(servers, pool=pool), asyncio.get_running_loop()
    began_s = loop.time()
    try:
        tools = set(await toolbox.connect())
        took_s = loop.time() - began_s
        return tools, {server.name: server.reason for server in toolbox.away}, took_s
    finally:
        await toolbox.close()


async def _late_turn(pool: ConnectionPool, starts: str, **servers: McpServer) -> tuple[set[str], dict[str, str], float]:
    """Return what a turn returns whose time for servers to start ends when another has started."""
    before = _count(starts)
    turn = asyncio.create_task(_turn(pool, **servers))
    await until(lambda: _count(starts) > before, "the start of a server")
    await pass_time(_START_S + 1)
    return await turn


async def test_two_hung_servers_cost_one_time_out_and_later_turns_none(starts: str) -> None:
    async with _pool() as pool:
        servers = {"one": _odd("hangs", starts), "two": _odd("hangs", f"{starts}2")}
        tools, away, first_s = await _late_turn(pool, starts, **servers)
        assert (tools, set(away)) == (set(), {"one", "two"})
        assert away["one"] == f"it did not answer within {_START_S:g} s"
        assert first_s < 2 * _START_S
        _, away, later_s = await _turn(pool, **servers)
        assert set(away) == {"one", "two"}
        assert later_s < _START_S / 2
        assert _count(starts) == 1


@pytest.mark.parametrize("reuse", [True, False])
async def test_a_rest_doubles_with_each_failure_and_ends_with_an_answer(starts: str, reuse: bool) -> None:
    clock = ManualClock()
    async with _pool(clock) as pool:
        server = _odd("dies", starts, reuse=reuse)
        for count, rest_s in enumerate((10.0, 20.0, 40.0), start=1):
            await _turn(pool, odd=server)
            clock.advance(rest_s - 1)
            assert (await _turn(pool, odd=server))[1]
            assert _count(starts) == count
            clock.advance(1)
        for _ in range(4):
            await _turn(pool, odd=server)
            clock.advance(300.0)
        assert _count(starts) == 7, "It rests for 5 minutes at most."


async def test_failures_of_a_server_that_answered_since_do_not_count(starts: str) -> None:
    clock = ManualClock()
    async with _pool(clock) as pool:
        server = _odd("hangs", starts, reuse=False)
        for rest_s in (10.0, 20.0):
            assert (await _late_turn(pool, starts, odd=server))[1]
            clock.advance(rest_s)
        _let_go(starts)
        assert (await _turn(pool, odd=server))[0] == {"work"}
        _let_go(starts, go=False)
        assert (await _late_turn(pool, starts, odd=server))[1]
        clock.advance(10.0)
        await _late_turn(pool, starts, odd=server)
        assert _count(starts) == 5


async def test_a_slow_server_goes_on_to_start_and_is_there_for_a_later_turn(starts: str) -> None:
    async with _pool() as pool:
        server = _odd("hangs", starts)
        assert (await _late_turn(pool, starts, odd=server))[1]
        _let_go(starts)

        async def is_there() -> bool:
            return (await _turn(pool, odd=server))[0] == {"work"}

        await until(is_there, "its rest to end by itself")
        assert _count(starts) == 1


async def test_a_server_that_never_lists_its_tools_rests_too(starts: str) -> None:
    async with _pool() as pool:
        server = _odd("lists nothing", starts)
        turn = asyncio.create_task(_turn(pool, odd=server))
        await until(Path(f"{starts}.asked").exists, "the question for its tools")
        await pass_time(_START_S + 1)
        _, away, first_s = await turn
        assert away == {"odd": "it did not say in time which tools it has"}
        assert first_s < 2 * _START_S
        assert (await _turn(pool, odd=server))[2] < _START_S / 2
        assert _count(starts) == 1


async def test_the_last_lines_of_a_server_that_died_are_kept_bounded_and_redacted(starts: str) -> None:
    redactor = Redactor()
    redactor.learn("key", "key-of-mine")
    with hiding(redactor):
        async with _pool() as pool:
            lease = pool.lease("odd", _odd("dies", starts))
            with pytest.raises(ServerAway) as raised:
                await lease.list_tools()
            await lease.release()
    assert len(raised.value.output) == 5
    assert raised.value.output[-1].startswith("line 6 ")
    assert "key-of-mine" not in "".join(raised.value.output)


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # Until the client has left.
    await reader.read()
    writer.close()


async def _broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


@pytest.mark.parametrize(("serve", "why"), [(_silent, "did not answer within"), (_broken, "error response")])
async def test_a_server_behind_a_url_that_does_not_answer_rests(serve: Any, why: str) -> None:
    async with _pool() as pool, await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
        turn = asyncio.create_task(_turn(pool, odd=HttpMcpServer(url)))
        if serve is _silent:
            await pass_time(_START_S + 1)
        _, away, first_s = await turn
        assert why in away["odd"]
        assert first_s < 2 * _START_S
        assert (await _turn(pool, odd=HttpMcpServer(url)))[2] < _START_S / 2
