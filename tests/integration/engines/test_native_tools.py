"""Native tools in whole turns: the model calls them over HTTP, and gets their results."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

from nova_workers.base.outbound.requests import Outbound
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.agents import Permissions
from nova_workers.contracts.content import JsonObject, text_of
from nova_workers.contracts.engine import (
    EngineCallbacks,
    EngineOptions,
    EngineResult,
    InProcessMcpServer,
    SubagentConfig,
    ToolAuthorization,
    ToolCall,
    TrustLevel,
)
from nova_workers.contracts.native import NATIVE_TOOLS
from nova_workers.domain.tool_policy.rules import CommandPolicy, ToolPolicy
from nova_workers.domain.tool_policy.rules.pages import WebPages
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.native import NativeTools, ShellSettings, WebSearchSettings
from tests.contract.engines.stage import assert_valid
from tests.requirements import proves
from tests.support.servers.model_server import ModelServer, Part, Stream
from tests.support.servers.web_server import WebServer, reply, web_server
from tests.support.waiting import until

DONE = Stream((Part("text", ["Done"]),))


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    """A web server on loopback, which only these tests may fetch from."""
    async with web_server() as web:
        yield web


@pytest.fixture
async def engine(server: ModelServer, web: WebServer) -> AsyncIterator[AnthropicEngine]:
    """The engine with every native tool."""
    pages = WebPages(Outbound(OutboundRules(allow_hosts=(f"127.0.0.1:{web.port}",))))
    native = NativeTools(fetcher=pages, shell=ShellSettings(), web_search=WebSearchSettings())
    engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0, native=native)
    yield engine
    await engine.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working directory."""
    work = tmp_path / "work"
    work.mkdir()
    return work


def _calls(*calls: tuple[str, JsonObject]) -> Stream:
    return Stream(tuple(Part("tool", (f"toolu_{name}_{at}", name, given)) for at, (name, given) in enumerate(calls)))


def _authorized(trust: TrustLevel, **permissions: Any) -> EngineCallbacks:
    policy = ToolPolicy(trust, CommandPolicy(Permissions(**permissions)))

    async def authorize(name: str, params: JsonObject) -> ToolAuthorization:
        return policy.judge(name, params).authorization()

    return EngineCallbacks(authorize_tool=authorize)


async def _run(engine: AnthropicEngine, work: Path, trust: TrustLevel, **given: Any) -> EngineResult:
    options = EngineOptions(model="sonnet", cwd=str(work), mcp_servers=given.pop("mcp_servers", {}))
    given.setdefault("callbacks", _authorized(trust))
    result = await engine.run("go", options, trust, **given)
    assert_valid(result.messages)
    return result


def _said(result: EngineResult) -> list[str]:
    return [text_of(call.result or ()) for call in result.tool_calls]


async def test_a_model_works_on_files_with_a_shell_and_the_web(
    server: ModelServer, engine: AnthropicEngine, work: Path, web: WebServer
) -> None:
    web.page("/", reply(b"<h1>News</h1>", kind="text/html"))
    server.reply(
        _calls(("Write", {"file_path": "notes/a.txt", "content": "one two\n"})),
        _calls(("Edit", {"file_path": "notes/a.txt", "old_string": "two", "new_string": "2"})),
        _calls(
            ("Read", {"file_path": "notes/a.txt"}),
            ("Glob", {"pattern": "**/*.txt"}),
            ("Grep", {"pattern": "^one"}),
            ("Bash", {"command": "cat notes/a.txt | tr a-z A-Z; exit 3"}),
            ("WebFetch", {"url": f"http://127.0.0.1:{web.port}/"}),
            ("WebFetch", {"url": "http://169.254.169.254/latest/meta-data/"}),
        ),
        DONE,
    )
    result = await _run(engine, work, "unrestricted")
    said = _said(result)
    assert said[2:6] == ["one 2\n", f"{work}/notes/a.txt", f"{work}/notes/a.txt:1:one 2", "ONE 2\n[exit code 3]"]
    assert "# News" in said[6]
    assert "public internet" in said[7]
    assert [call.status for call in result.tool_calls] == ["completed"] * 5 + ["failed", "completed", "failed"]
    # The model saw the same.
    sent = [block["content"][0]["text"] for block in server.requests[-1]["messages"][-1]["content"]]
    assert sent == said[2:]
    assert result.text == "Done"


@pytest.mark.parametrize("trust", ["sandbox", "controlled", "unrestricted"])
@proves("security.native-tools")
async def test_a_model_is_offered_the_tools_of_its_trust(
    server: ModelServer, engine: AnthropicEngine, work: Path, trust: TrustLevel
) -> None:
    server.reply(DONE)
    await _run(engine, work, trust)
    offered = {tool["name"]: tool for tool in server.requests[0].get("tools", [])}
    search = offered.pop("web_search", None)
    assert set(offered) | ({"WebSearch"} if search else set()) == set(NATIVE_TOOLS[trust])
    if search:
        assert search == {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}


@pytest.mark.parametrize("trust", ["sandbox", "controlled"])
@pytest.mark.parametrize("asked", [True, False])
@proves("security.native-tools")
async def test_an_invented_call_above_the_trust_does_nothing(
    server: ModelServer, engine: AnthropicEngine, work: Path, trust: TrustLevel, asked: bool
) -> None:
    server.reply(_calls(("Bash", {"command": f"touch {work}/made"})), DONE)
    result = await _run(engine, work, trust, callbacks=_authorized(trust) if asked else EngineCallbacks())
    assert result.tool_calls[0].status == "failed"
    assert "no tool 'Bash'" in _said(result)[0]
    assert not (work / "made").exists()


async def test_the_model_gets_the_refusal_of_a_command_that_the_agent_may_not_run(
    server: ModelServer, engine: AnthropicEngine, work: Path
) -> None:
    server.reply(_calls(("Bash", {"command": "make deploy"}), ("Bash", {"command": "echo fine"})), DONE)
    callbacks = _authorized("unrestricted", ask_commands=("make deploy*",))
    result = await _run(engine, work, "unrestricted", callbacks=callbacks)
    assert [call.status for call in result.tool_calls] == ["failed", "completed"]
    assert "person's permission" in _said(result)[0]


async def test_the_same_command_is_refused_the_fourth_time_in_a_run(
    server: ModelServer, engine: AnthropicEngine, work: Path
) -> None:
    again = _calls(("Bash", {"command": "echo x >> log"}))
    server.reply(again, again, again, again, DONE)
    result = await _run(engine, work, "unrestricted")
    assert [call.status for call in result.tool_calls] == ["completed"] * 3 + ["failed"]
    assert (work / "log").read_text() == "x\n" * 3


async def test_an_abort_ends_a_command_with_its_children_and_leaves_a_valid_transcript(
    server: ModelServer, engine: AnthropicEngine, work: Path
) -> None:
    server.reply(_calls(("Bash", {"command": "setsid sleep 999 & sleep 999 & touch born; wait"})), DONE)
    abort = AbortSignal()
    turn = asyncio.create_task(_run(engine, work, "unrestricted", abort=abort))
    await until((work / "born").exists)
    abort.abort("cancel")
    result = await asyncio.wait_for(turn, 60)
    assert result.stop_reason == "aborted"
    assert result.tool_calls[0].status == "interrupted"
    assert not [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(work)]


@proves("security.tool-names")
async def test_a_capabilitys_tool_with_a_native_name_is_qualified_by_its_server(
    server: ModelServer, engine: AnthropicEngine, work: Path
) -> None:
    async def list_tools(*_: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in ("Read", "Bash")])

    async def call_tool(_: Any, params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=f"capability {params.name}")])

    capability = InProcessMcpServer(Server("box", on_list_tools=list_tools, on_call_tool=call_tool))
    (work / "f").write_text("native")
    calls = _calls(("Read", {"file_path": "f"}), ("box__Read", {}), ("box__Bash", {}))
    server.reply(calls, DONE)
    result = await _run(engine, work, "controlled", mcp_servers={"box": capability})
    assert _said(result) == ["native", "capability Read", "capability Bash"]
    server.requests.clear()
    server.reply(calls, DONE)
    result = await _run(engine, work, "sandbox", mcp_servers={"box": capability})
    assert [tool["name"] for tool in server.requests[0]["tools"]] == ["box__Read", "box__Bash"]
    assert _said(result)[1:] == ["capability Read", "capability Bash"]
    assert "no tool 'Read'" in _said(result)[0]


@pytest.mark.parametrize(
    ("rule", "offered"),
    [
        ({"tool": "WebSearch", "decision": "always"}, True),
        ({"tool": "WebSearch", "decision": "ask"}, False),
        ({"tool": "Web*", "decision": "never"}, False),
    ],
)
async def test_the_providers_search_is_offered_if_it_needs_no_approval(
    server: ModelServer, engine: AnthropicEngine, work: Path, rule: dict[str, str], offered: bool
) -> None:
    helper = SubagentConfig("Looks.", "You look.")
    delegates = Stream((Part("tool", ("toolu_1", "Task", {"agent": "eye", "prompt": "look"})),))
    server.reply(delegates, DONE)
    options = EngineOptions(model="sonnet", cwd=str(work), agents={"eye": helper})
    await engine.run("go", options, "controlled", callbacks=_authorized("controlled", approvals=(rule,)))
    for request in server.requests[:2]:
        assert ("web_search" in {tool["name"] for tool in request["tools"]}) is offered


@proves("security.tool-names")
async def test_a_tool_with_the_name_of_the_providers_search_is_qualified_by_its_server(
    server: ModelServer, engine: AnthropicEngine, work: Path
) -> None:
    async def list_tools(*_: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="web_search", input_schema={"type": "object"})])

    server.reply(DONE)
    brave = InProcessMcpServer(Server("brave", on_list_tools=list_tools))
    await _run(engine, work, "controlled", mcp_servers={"brave": brave})
    names = [tool["name"] for tool in server.requests[0]["tools"]]
    assert names.count("web_search") == 1
    assert names[-1] == "brave__web_search"


async def test_results_of_the_providers_search_are_sent_back_unchanged(
    server: ModelServer, engine: AnthropicEngine, work: Path
) -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea"}}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {
                "type": "web_search_result",
                "url": "https://x.test/",
                "title": "Tea",
                "encrypted_content": "abc",
                "page_age": None,
            }
        ],
    }
    parts = [
        Part("event", (kind, {"index": index} | data))
        for index, block in enumerate((use, found))
        for kind, data in (("content_block_start", {"content_block": block}), ("content_block_stop", {}))
    ]
    text = {"type": "text", "text": "Tea it is."}
    parts += [
        Part("event", ("content_block_start", {"index": 2, "content_block": text})),
        Part("event", ("content_block_stop", {"index": 2})),
    ]
    server.reply(Stream(tuple(parts), stop_reason="pause_turn"), DONE)
    told: list[tuple[str, str, JsonObject]] = []

    def on_tool_use(call: ToolCall, _: str) -> None:
        told.append((call.id, call.tool_name, call.params))

    callbacks = EngineCallbacks(authorize_tool=_authorized("controlled").authorize_tool, on_tool_use=on_tool_use)
    await _run(engine, work, "controlled", callbacks=callbacks)
    assert told == [("srvtoolu_1", "WebSearch", {"query": "tea"})]
    sent = json.dumps(server.requests[1]["messages"][-1]["content"])
    assert json.dumps("srvtoolu_1") in sent
    assert "encrypted_content" in sent
