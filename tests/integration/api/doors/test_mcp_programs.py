"""Programs of others use the fleet as their users do: the SDK's client by `nova mcp`, and Claude Code by its line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.client.stdio import stdio_client
from mcp.types import ElicitRequestParams, ElicitResult, TextContent

from nova_workers.base.config import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.doors.mcp_requests import MODERN, TASKS, RelayClient, claimed
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves
from tests.support.data.documents import ROOT, blocks
from tests.support.harness.trees import call, script
from tests.support.processes.fleet import Fleet, fleet_env
from tests.support.servers.model_server import Part, Stream, model_server
from tests.support.waiting import until

_PAGE = ROOT / "docs" / "connect.md"
_CLAUDE = Path(claude_agent_sdk.__file__).parent / "_bundled"


@proves("doors.mcp-relay")
@pytest.mark.fleet
async def test_a_call_by_nova_mcp_outlives_the_api_and_asks_its_user(settings: Settings, tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"answer": "Blue"})

    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": TASKS,
    }
    async with AsyncExitStack() as stack, Fleet(fleet_env(settings) | {"NOVA_DOORS": '["mcp"]'}, workers=0) as fleet:
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "nova_workers.cli", "mcp"],
            env={"NOVA_API_URL": fleet.api_url, "NOVA_API_KEY": fleet.api_key, "NOVA_HOME": str(tmp_path)},
        )
        errors = stack.enter_context((tmp_path / "mcp.log").open("a"))
        async with Client(stdio_client(command, errors), elicitation_callback=answer) as client:
            assert client.protocol_version == "2026-07-28"
            message = script(call("ask_user", question="Which colour?"), {"say": "As you like."})
            calling = asyncio.create_task(client.call_tool("ask_nova", {"message": message, "wait_s": 120}))
            (run,) = await until(lambda: _runs(fleet), "the run")
            listener = RelayClient(fleet.api_url, fleet.api_key)
            listened = listener.send(1, "subscriptions/listen", notifications={"taskIds": [run.id]}, _meta=meta)
            await until(lambda: len(listener.got) == 2, "the state of the task")
            assert fleet.api is not None
            fleet.api.kill()
            await fleet.start_api()
            await fleet.start_worker()
            result = await calling
        assert (await listened)["result"]["resultType"] == "complete"
        await listener.close()
        assert [each.id for each in await _runs(fleet)] == [run.id]
    acknowledged, *states, _ = listener.got
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert [state["params"]["status"] for state in (states[0], states[-1])] == ["working", "completed"]
    assert asked == ["Which colour?"]
    assert [block.text for block in result.content if isinstance(block, TextContent)] == ["As you like."]
    assert (result.structured_content or {})["run_id"] == run.id


async def _runs(fleet: Fleet) -> Any:
    return (await fleet.client.runs.list()).items


async def test_claude_code_asks_an_agent(api: Api, worker: ManualWorker, tmp_path: Path) -> None:
    (line,) = [block.text for block in blocks("sh", _PAGE) if block.text.startswith("claude ")]
    async with model_server() as model:
        tool = Stream((Part("tool", ("toolu_0", "mcp__nova__ask_nova", {"message": "What is a fence?"})),))
        said = Stream((Part("text", ["It is a number."]),))
        model.reply_when(lambda _, body: "tool_result" in json.dumps(body["messages"]), said)
        model.reply_when(lambda _, body: any(each["name"] == "mcp__nova__ask_nova" for each in body["tools"]), tool)
        model.reply(said)
        environment = {
            "PATH": f"{_CLAUDE}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "NOVA_API_URL": api.url,
            "NOVA_API_KEY": api.tenant.key,
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": model.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ENABLE_TOOL_SEARCH": "false",
            # However busy the machine is, the program waits for the server before it asks its model.
            "MCP_CONNECTION_NONBLOCKING": "false",
            "MCP_CONNECT_TIMEOUT_MS": "120000",
            "MCP_TIMEOUT": "120000",
        }
        assert "Added" in await _output(line.replace("http://127.0.0.1:8700", api.url), environment, tmp_path)
        ask = "claude --print --model claude-sonnet-5 --allowedTools mcp__nova__ask_nova -- 'Ask nova what a fence is.'"
        asking = asyncio.create_task(_output(ask, environment, tmp_path))
        await (await claimed(api, worker)).finish("A number that grows.")
        assert "It is a number." in await asking
    assert "A number that grows." in json.dumps(model.requests)


async def _output(line: str, environment: dict[str, str], folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euc", line),
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()
