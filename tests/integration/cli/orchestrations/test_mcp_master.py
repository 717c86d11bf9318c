"""`nova mcp-master` with a real MCP client and a real fleet."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent

from nova_workers.base.config import Settings
from nova_workers.base.release import release
from nova_workers.contracts.http.orchestrations import MasterComplete
from nova_workers.contracts.waits import RunAnswer
from tests.requirements import proves
from tests.support.harness.trees import call, complete, script
from tests.support.processes.command_line import Nova
from tests.support.processes.fleet import Fleet, add_api_key, fleet_env
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

_TOOLS = {
    "ask_user",
    "check_child_status",
    "consult_expert",
    "consult_peer",
    "get_child_history",
    "get_children_status",
    "recommend_model",
    "respond_to_child",
    "restart_child",
    "run_bash",
    "send_child_prompt",
    "spawn_child",
    "spawn_children_parallel",
    "task_complete",
    "wait_for_message",
}
"""The orchestration tools of the specification, without those of a child."""


@asynccontextmanager
async def _client(fleet: Fleet, log: Path, *arguments: str) -> AsyncGenerator[ClientSession]:
    """Start the command as an MCP client does. Leaving the block ends it."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "nova_workers.cli", "mcp-master", *arguments],
        env={"NOVA_API_URL": fleet.api_url, "NOVA_API_KEY": fleet.api_key, "NOVA_HOME": str(log.parent)},
    )
    with log.open("a") as errors:
        async with stdio_client(server, errors) as (read, write), ClientSession(read, write) as session:
            about = (await session.initialize()).server_info
            assert (about.name, about.version) == ("nova", release())
            yield session


async def _call(session: ClientSession, tool: str, /, **arguments: Any) -> tuple[str, bool]:
    """Return the text of a result, and whether it is an error."""
    result = await session.call_tool(tool, arguments)
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text, bool(result.is_error)


@proves("orchestration.mcp-master")
async def test_an_mcp_client_leads_agents_and_is_taken_up_again(settings: Settings, tmp_path: Path) -> None:
    log = tmp_path / "mcp.log"
    async with Fleet(fleet_env(settings)) as fleet:
        orchestrations = fleet.client.orchestrations
        async with _client(fleet, log) as session:
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert set(tools) == _TOOLS
            assert set(tools["spawn_child"].input_schema["properties"]) >= {
                *("prompt", "wait", "tools", "model", "cwd", "mcp_servers", "complexity"),
            }
            assert (await orchestrations.list()).items == [], "It is opened at the first call."
            children = [
                {"prompt": script(complete("part one")), "name": "One"},
                {
                    "prompt": script(call("ask_parent", question="Tabs or spaces?"), complete("part two")),
                    "name": "Two",
                },
            ]
            asked, failed = await _call(session, "spawn_children_parallel", children=children)
            assert not failed
            assert "Tabs or spaces?" in asked
            (view,) = (await orchestrations.list()).items
            asking = next(each for each in (await orchestrations.tree(view.id)).agents if each.name == "Two")
            assert (await _call(session, "respond_to_child", child_id=asking.id, response="Spaces."))[1] is False
            assert await _call(session, "run_bash", command="echo $((6 * 7))") == ("42\n", False)
            text, failed = await _call(session, "ask_user", question="Go on?")
            assert failed
            assert "your own conversation" in text
        async with _client(fleet, log, "--orchestration", view.id) as session:
            results = [(await _call(session, "wait_for_message"))[0] for _ in range(2)]
            assert "part one" in "".join(results)
            assert "part two" in "".join(results)
            text, failed = await _call(session, "respond_to_child", child_id="oag_unknown", response="x")
            assert failed
            assert "There is no child" in text
            await _kill_in_a_wait(fleet, session, view.id)
        async with _client(fleet, log, "--orchestration", view.id) as session:
            assert "from the third" in (await _call(session, "wait_for_message"))[0]
        ended = await orchestrations.complete(view.id, MasterComplete(summary="Both parts are done."))
        assert (ended.state, ended.summary) == ("COMPLETED", "Both parts are done.")
        assert "is COMPLETED" in _refusal(fleet, tmp_path, view.id, fleet.api_key)
        other_key, _ = await add_api_key(fleet.env["NOVA_DATABASE_URL"])
        assert f"There is no orchestration '{view.id}'" in _refusal(fleet, tmp_path, view.id, other_key)
    assert f"take it up again with `nova mcp-master --orchestration {view.id}`" in log.read_text()


async def _kill_in_a_wait(fleet: Fleet, session: ClientSession, orchestration_id: str) -> None:
    """Kill the command while it waits for a child that asks a person; then answer the child."""
    asks = script(call("ask_user", question="Which?"), complete("from the third"))
    await _call(session, "spawn_child", prompt=asks, name="Three", wait=False)
    waiting = asyncio.create_task(_call(session, "wait_for_message"))
    await until(lambda: _is_waiting(fleet, orchestration_id))
    (pid,) = _servers()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(MCPError):
        await waiting
    (wait,) = (await fleet.client.runs.waits()).items
    await fleet.client.runs.answer(wait.run_id, RunAnswer(text="This one."))


async def _is_waiting(fleet: Fleet, orchestration_id: str) -> bool:
    tree = await fleet.client.orchestrations.tree(orchestration_id)
    return tree.agents[0].state == "WAITING_FOR_CHILD" and any(agent.waits for agent in tree.agents)


def _servers() -> list[int]:
    """Return the commands that this process has started."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"mcp-master" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def _refusal(fleet: Fleet, home: Path, orchestration_id: str, key: str) -> str:
    """Return what the command says that ends at once, for an orchestration that it cannot take up."""
    nova = Nova({"NOVA_API_URL": fleet.api_url, "NOVA_API_KEY": key, "NOVA_HOME": str(home)})
    with nova.child("mcp-master", "--orchestration", orchestration_id) as child:
        done = child.done()
    assert done.code == 1
    return done.err
