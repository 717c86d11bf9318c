"""Behaviour beyond the shared contract suite: the program's own ways in the terms of the contract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.server import Server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from nova_workers.base.errors import EngineErrorKind
from nova_workers.contracts.content import Message, text_block, text_of
from nova_workers.contracts.engine import (
    EngineCallbacks,
    InProcessMcpServer,
    StepRecord,
    StepVerdict,
    SubagentConfig,
    ToolCall,
)
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from nova_workers.engines.prices import ModelPrice
from tests.contract.engines.stage import Bench, TurnRecorder
from tests.integration.engines.claude_agent.claude_turns import (
    PIXEL,
    conversation_of,
    options,
    request_text,
    results,
    text_response,
    tool_response,
)
from tests.integration.engines.claude_agent.conftest import MakeEngine
from tests.support.servers.model_server import ModelServer, Part, Status, Stream
from tests.support.waiting import stays


async def test_steering_is_in_the_next_model_call(engine: ClaudeAgentEngine, server: ModelServer) -> None:
    recorder, bench = TurnRecorder(), Bench()
    recorder.steering = [(Message("user", (text_block("and be brief"),)),)]
    server.reply(tool_response(("mcp__nova__count", {})), text_response("Ok."))
    given = options(mcp_servers=bench.servers())
    result = await engine.run("hi", given, "sandbox", callbacks=recorder.callbacks())
    assert "and be brief" in request_text(server, 1)
    assert (result.text, len(server.requests)) == ("Ok.", 2)
    assert result.messages[2] == Message("user", (text_block("and be brief"),))


async def test_the_program_waits_for_each_commit(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    committed: list[str] = []

    async def on_tool_calls(_: StepRecord) -> None:
        await stays(lambda: not (workspace / "new.txt").exists(), for_s=0.5)
        committed.append("calls")

    async def on_step(_: StepRecord) -> StepVerdict:
        asked = len(server.requests)
        await stays(lambda: len(server.requests) == asked, for_s=0.5)
        committed.append(f"step {asked}")
        return "continue"

    server.reply(
        tool_response(("Write", {"file_path": str(workspace / "new.txt"), "content": "x"})), text_response("ok")
    )
    callbacks = EngineCallbacks(on_tool_calls=on_tool_calls, on_step=on_step)
    result = await engine.run("hi", options(cwd=str(workspace)), "controlled", callbacks=callbacks)
    assert results(result)[0][0] == "completed"
    assert committed == ["calls", "step 1", "step 2"]


async def test_usage_has_cache_and_reasoning_tokens_and_a_price(engine: ClaudeAgentEngine, server: ModelServer) -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 50,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 200,
        "output_tokens_details": {"thinking_tokens": 20},
    }
    server.reply(Stream((Part("thinking", ["Hm"]), Part("text", ["ok"])), usage=usage))
    result = await engine.run("hi", options(model="claude-sonnet-4-5", thinking_budget_tokens=2000), "sandbox")
    tokens = result.usage.tokens
    assert (tokens.input_tokens, tokens.output_tokens, tokens.reasoning_tokens) == (100, 50, 20)
    assert (tokens.cache_read_tokens, tokens.cache_write_tokens) == (1000, 200)
    assert tokens.cost_usd == pytest.approx((100 * 3 + 50 * 15 + 1000 * 0.3 + 200 * 3.75) / 1e6)
    assert (result.usage.turns, result.model) == (1, "claude-sonnet-4-5")
    assert server.requests[0]["thinking"]["type"] == "enabled"


@pytest.mark.long  # prices are of the shared turn
async def test_the_operators_price_applies_if_the_answering_model_has_another_name(
    make_engine: MakeEngine, server: ModelServer
) -> None:
    engine = make_engine(prices={"house-model": ModelPrice(input=1.0, output=10.0, cache_read=0.1, cache_write=2.0)})
    server.reply(
        replace(text_response("ok"), model="house-model-20260101", usage={"input_tokens": 1_000, "output_tokens": 2})
    )
    result = await engine.run("hi", options(model="house-model"), "sandbox")
    assert result.usage.tokens.cost_usd == pytest.approx(0.00102)


async def test_a_subagents_events_are_published_and_its_tokens_counted(
    engine: ClaudeAgentEngine, server: ModelServer
) -> None:
    begun: list[tuple[str, str]] = []
    heard: list[str] = []
    used: list[str] = []
    bench = Bench()

    def subagent(call_id: str, name: str) -> EngineCallbacks:
        begun.append((call_id, name))
        return EngineCallbacks(on_token=heard.append, on_tool_use=lambda call, _: used.append(call.tool_name))

    recorder = TurnRecorder()
    callbacks = recorder.callbacks(subagent=subagent)
    ask = {"description": "count", "prompt": "count it", "subagent_type": "counter"}
    server.reply_when(
        lambda _, body: "You only count." in str(body.get("system")),
        tool_response(("mcp__nova__count", {}), step=7),
        text_response("There is one."),
    )
    server.reply(tool_response(("Agent", ask)), text_response("One."))
    agents = {"counter": SubagentConfig("Counts things", "You only count.", tools=("count",))}
    given = options(mcp_servers=bench.servers(), agents=agents)
    result = await engine.run("hi", given, "sandbox", callbacks=callbacks)
    assert (result.text, bench.runs) == ("One.", ["count"])
    assert begun == [("toolu_0_0", "counter")]
    assert (heard, used) == (["There is one."], ["count"])
    assert ("authorize", "count") in recorder.log
    assert "There is one." in results(result)[0][1]
    assert result.usage.tokens.input_tokens == 40
    assert result.usage.turns == 2
    # The subagent's input does not lengthen the conversation.
    assert [(step.usage.input_tokens, step.tool_usage.input_tokens) for step in recorder.records] == [(10, 0), (10, 20)]


async def test_images_go_to_the_model(engine: ClaudeAgentEngine, server: ModelServer) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    server.reply(text_response("A pixel."))
    result = await engine.run((image, text_block("what is it?")), options(), "sandbox")
    assert result.text == "A pixel."
    assert PIXEL in request_text(server)


async def test_an_invalid_answer_is_sent_back_in_the_same_program(
    engine: ClaudeAgentEngine, server: ModelServer
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server.reply(text_response("seven"), text_response('{"n": 7}'))
    result = await engine.run("how many?", options(output_schema=schema), "sandbox")
    assert (result.output, len(server.requests)) == ({"n": 7}, 2)
    assert [role for role, _ in conversation_of(server)] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (Status(401, "authentication_error", "bad key"), "auth_failure", False),
        pytest.param(Status(429, "rate_limit_error", "slow down"), "rate_limit", True, marks=pytest.mark.long),
        (Status(400, "invalid_request_error", "prompt is too long: 300000 tokens > 200000"), "context_overflow", False),
        pytest.param(Status(529, "overloaded_error", "Overloaded"), "model_error", True, marks=pytest.mark.long),
    ],
)
async def test_an_error_of_the_provider_is_reported_by_kind(
    engine: ClaudeAgentEngine, server: ModelServer, status: Status, kind: EngineErrorKind, *, retryable: bool
) -> None:
    server.reply(status)
    result = await engine.run("hi", options(), "sandbox")
    assert result.error is not None
    assert (result.stop_reason, result.error.kind, result.error.retryable) == ("error", kind, retryable)


async def test_an_interrupted_answer_is_kept_and_continued(make_engine: MakeEngine, server: ModelServer) -> None:
    recorder = TurnRecorder()
    server.reply(Stream((Part("text", ["Half an"]), Part("sleep", 0.5), Part("cut"))), text_response(" answer."))
    engine = make_engine(max_retries=2)
    result = await engine.run("hi", options(), "sandbox", callbacks=recorder.callbacks())
    assert (result.error, recorder.tokens) == (None, ["Half an", " answer."])
    assert [text_of(message.content) for message in result.messages] == ["Half an", " answer."]
    assert [record.final for record in recorder.records] == [False, True]
    assert ("assistant", "Half an") in conversation_of(server)


async def test_without_a_key_the_turn_fails_as_an_auth_failure(make_engine: MakeEngine) -> None:
    result = await make_engine(api_key=None).run("hi", options(), "sandbox")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("auth_failure", False)


async def test_calls_of_the_programs_own_tools_are_reported_with_a_summary(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    summaries: list[str] = []

    def on_tool_use(_: ToolCall, summary: str) -> None:
        summaries.append(summary)

    server.reply(tool_response(("Read", {"file_path": str(workspace / "note.txt")})), text_response("ok"))
    callbacks = EngineCallbacks(on_tool_use=on_tool_use)
    result = await engine.run("hi", options(cwd=str(workspace)), "controlled", callbacks=callbacks)
    assert summaries[0].startswith("Reading ")
    assert "inside" in results(result)[0][1]


async def test_unstorable_calls_are_tool_errors_and_two_with_one_id_are_two(
    engine: ClaudeAgentEngine, server: ModelServer
) -> None:
    def call(call_id: str, given: object) -> Part:
        return Part("tool", (call_id, "mcp__nova__count", given))

    server.reply(Stream((call("toolu_1", {}), call("toolu_1", {}), call("toolu_2", "[1e999]"))), text_response("Ok."))
    bench = Bench()
    result = await engine.run("hi", options(mcp_servers=bench.servers()), "sandbox")
    assert (result.text, result.error) == ("Ok.", None)
    assert [(call.id, call.status) for call in result.tool_calls] == [
        ("toolu_1", "completed"),
        ("toolu_1_2", "completed"),
        ("toolu_2", "failed"),
    ]
    blocks = [block for message in server.requests[-1]["messages"] for block in message["content"]]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    assert [block["id"] for block in calls] == ["toolu_1", "toolu_1_2", "toolu_2"]
    assert all(isinstance(block["input"], dict) for block in calls)
    assert "not a JSON object" in request_text(server, len(server.requests) - 1)


async def test_the_model_gets_long_results_as_the_ledger_has_them(
    engine: ClaudeAgentEngine, server: ModelServer
) -> None:
    calls = [("mcp__nova__read", {"line": f"{at:07d}\n"}) for at in range(3)]
    server.reply(tool_response(*calls), text_response("Read."))
    result = await engine.run("hi", options(mcp_servers={"long": _long_server(lines=12_000)}), "sandbox")
    kept = [text for _, text in results(result)]
    assert [len(text) for text in kept] == [96_000] * 3
    blocks = [block for message in server.requests[1]["messages"] for block in message["content"]]
    seen = [block["content"] for block in blocks if isinstance(block, dict) and block["type"] == "tool_result"]
    assert [one if isinstance(one, str) else "".join(part["text"] for part in one) for one in seen] == kept


def _long_server(lines: int) -> InProcessMcpServer:
    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="read", input_schema={"type": "object"})])

    async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(text=(params.arguments or {})["line"] * lines)])

    return InProcessMcpServer(Server("long", on_list_tools=list_tools, on_call_tool=call_tool))
