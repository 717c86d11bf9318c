"""The requests of the anthropic engine, and its reading of responses."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from dirty_equals import IsList, IsPartialDict
from inline_snapshot import snapshot
from structlog.testing import capture_logs

from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineCallbacks, EngineOptions, EngineResult, InProcessMcpServer
from nova_workers.contracts.run_options import NamedTool, ToolChoice
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.sdk.testing.strict.signatures import sign
from tests.contract.engines.stage import Bench, TurnRecorder, assert_valid
from tests.requirements import proves
from tests.support.servers.model_server import ModelServer, Part, Status, Stream

HELLO = Stream((Part("text", ["Hello"]),))


async def _run(engine: AnthropicEngine, **options: Any) -> EngineResult:
    return await engine.run("hi", EngineOptions(**options), "sandbox")


def _noting(left_out: list[str]) -> EngineCallbacks:
    return EngineCallbacks(on_option_left_out=lambda option, _: left_out.append(option))


async def test_the_request_marks_the_stable_prefix_for_the_cache(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(HELLO)
    servers = {"bench": InProcessMcpServer(bench.servers()["bench"].server, tools=("add", "count"))}
    await _run(engine, system_prompt="Be kind", mcp_servers=servers)
    (request,) = server.requests
    assert request == snapshot(
        {
            "max_tokens": 8192,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "model": "claude-sonnet-5-5",
            "cache_control": {"type": "ephemeral"},
            "system": [{"type": "text", "text": "Be kind", "cache_control": {"type": "ephemeral"}}],
            "tools": [
                {"name": "add", "description": "Does add.", "input_schema": {"type": "object", "properties": {}}},
                {
                    "name": "count",
                    "description": "Does count.",
                    "input_schema": {"type": "object", "properties": {}},
                    "cache_control": {"type": "ephemeral"},
                },
            ],
            "stream": True,
        }
    )
    assert server.headers[0]["authorization"] == "Bearer the-key"


async def test_history_is_replayed_byte_for_byte(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(HELLO)
    thought = {"type": "thinking", "thinking": "Hm", "signature": sign("Hm")}
    history = (
        Message("user", (text_block("one"),)),
        Message("assistant", (thought, {"type": "tool_use", "id": "toolu_1", "name": "x", "input": {"a": None}})),
        Message("user", ({"type": "tool_result", "tool_use_id": "toolu_1", "content": [text_block("r")]},)),
        Message("assistant", (text_block("two"),)),
    )
    await _run(engine, history=history)
    sent = server.requests[0]["messages"]
    # But for the mark of the cache on its last block.
    assert sent[3]["content"][-1].pop("cache_control") == {"type": "ephemeral"}
    assert sent[:4] == [{"role": message.role, "content": list(message.content)} for message in history]


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("opus", "claude-opus-5-5"),
        ("swift", "claude-haiku-4-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5-20251001"),
        ("someone-elses-model", "someone-elses-model"),
    ],
)
async def test_aliases_are_resolved_and_other_names_pass_through(server: ModelServer, model: str, sent: str) -> None:
    server.reply(HELLO)
    engine = AnthropicEngine(api_key="k", base_url=server.url, aliases={"swift": "claude-haiku-4-5"})
    result = await _run(engine, model=model)
    await engine.close()
    assert (server.requests[0]["model"], result.model) == (sent, sent)


@pytest.mark.parametrize(
    ("model", "thinking", "max_tokens"),
    [
        ("claude-sonnet-4-20250514x", {"type": "enabled", "budget_tokens": 9000}, 9000 + 1024),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 9000}, 9000 + 1024),
        ("opus", {"type": "adaptive", "display": "summarized"}, 9000 + 1024),
    ],
)
async def test_thinking_is_requested_in_the_form_of_the_model(
    server: ModelServer, engine: AnthropicEngine, model: str, thinking: dict[str, Any], max_tokens: int
) -> None:
    server.reply(HELLO)
    await _run(engine, model=model, thinking_budget_tokens=9000)
    assert (server.requests[0]["thinking"], server.requests[0]["max_tokens"]) == (thinking, max_tokens)


@pytest.mark.parametrize("model", ["claude-haiku-4-5", "my-own-model"])
async def test_a_temperature_is_sent_to_models_that_accept_one(
    server: ModelServer, engine: AnthropicEngine, model: str
) -> None:
    server.reply(HELLO)
    await _run(engine, model=model, temperature=0.5)
    assert server.requests[0]["temperature"] == 0.5


async def test_a_model_that_takes_no_temperature_is_asked_without_and_that_is_noted(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    server.reply(HELLO)
    left_out = list[str]()
    options = EngineOptions(model="opus", temperature=0.5)
    result = await engine.run("hi", options, "sandbox", callbacks=_noting(left_out))
    assert (result.text, result.error) == ("Hello", None)
    assert "temperature" not in server.requests[0]
    assert left_out == ["temperature"]


@pytest.mark.parametrize(
    ("option", "given", "says"),
    [
        ("temperature", {"temperature": 0.5}, "`temperature` is deprecated for this model."),
        ("thinking", {"thinking_budget_tokens": 2000}, "adaptive thinking is not supported on this model"),
    ],
)
async def test_an_option_that_the_provider_refuses_is_left_out_from_then_on(
    server: ModelServer, engine: AnthropicEngine, option: str, given: dict[str, Any], says: str
) -> None:
    server.reply(Status(400, "invalid_request_error", says), HELLO)
    left_out = list[str]()
    for _ in range(2):
        options = EngineOptions(model="my-own-model", **given)
        result = await engine.run("hi", options, "sandbox", callbacks=_noting(left_out))
        assert result.error is None
    assert [option in request for request in server.requests] == [True, False, False]
    assert left_out == [option] * 2


async def test_usage_has_cache_and_reasoning_and_a_price(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(
        Stream(
            (Part("text", ["Hello"]),),
            usage={
                "input_tokens": 1_000,
                "output_tokens": 500,
                "cache_read_input_tokens": 10_000,
                "cache_creation_input_tokens": 2_000,
                "output_tokens_details": {"thinking_tokens": 300},
            },
        )
    )
    result = await _run(engine, model="claude-sonnet-5-5")
    tokens = result.usage.tokens
    assert replace(tokens, cost_usd=None) == TokenUsage(1_000, 500, 10_000, 2_000, 300, cost_usd=None)
    # Dollars a million: input 2, cache read 0.10, cache write 2.50, output (reasoning is part of it) 10.
    assert tokens.cost_usd == pytest.approx(0.002 + 0.001 + 0.005 + 0.005)


async def test_a_model_without_a_price_is_counted_and_warned_of_once(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    server.reply(HELLO)
    with capture_logs() as logs:
        results = [await _run(engine, model="my-own-model") for _ in range(2)]
    assert [result.usage.tokens for result in results] == [TokenUsage(10, 5, cost_usd=None)] * 2
    assert logs == IsList(IsPartialDict(event="model_price_unknown", model="my-own-model"))


async def test_usage_of_an_answer_that_was_cut_short_is_counted(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(Stream((Part("text", ["Hel"]), Part("cut"))))
    recorder = TurnRecorder()
    result = await engine.run("hi", EngineOptions(), "sandbox", callbacks=recorder.callbacks())
    assert result.usage.tokens.input_tokens == 10
    assert recorder.records[0].usage == result.usage.tokens


async def test_a_response_cut_off_by_max_tokens_runs_no_incomplete_call(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    half = Part("tool", ("toolu_1", "count", '{"a": "unfin'))
    server.reply(Stream((Part("text", ["So"]), half), stop_reason="max_tokens"))
    result = await _run(engine, mcp_servers=bench.servers())
    assert (result.stop_reason, result.text, bench.runs) == ("max_tokens", "So", [])
    assert_valid(result.messages)


async def test_a_paused_response_is_sent_back_and_continued(server: ModelServer, engine: AnthropicEngine) -> None:
    searches = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea"}}
    server.reply(Stream((Part("text", ["Wait"]), Part("block", (searches, []))), stop_reason="pause_turn"), HELLO)
    recorder = TurnRecorder()
    result = await engine.run("hi", EngineOptions(), "sandbox", callbacks=recorder.callbacks())
    assert result.text == "Hello"
    assert server.requests[1]["messages"][-1] == {"role": "assistant", "content": [text_block("Wait"), searches]}
    assert [record.final for record in recorder.records] == [False, True]


async def test_an_answer_without_content_ends_the_turn(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(Stream((Part("tool", ("toolu_1", "count", {})),)), Stream(()))
    result = await _run(engine, mcp_servers=bench.servers())
    assert (result.stop_reason, result.text, len(result.messages)) == ("end_turn", "", 2)
    assert_valid(result.messages)


async def test_an_unknown_tool_is_an_error_for_the_model(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(Stream((Part("tool", ("toolu_1", "none", {})),)), HELLO)
    result = await _run(engine, mcp_servers=bench.servers())
    assert "There is no tool 'none'. Available: add, count" in (result.tool_calls[0].error or "")


async def test_a_tool_outside_the_allow_list_is_neither_offered_nor_run(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(Stream((Part("tool", ("toolu_1", "count", {})),)), HELLO)
    servers = {"bench": InProcessMcpServer(bench.servers()["bench"].server, tools=("add",))}
    result = await _run(engine, mcp_servers=servers)
    assert [tool["name"] for tool in server.requests[0]["tools"]] == ["add"]
    assert (result.tool_calls[0].status, bench.runs) == ("failed", [])


async def test_tools_of_two_servers_with_one_name_are_both_reachable(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    other = Bench()
    server.reply(Stream((Part("tool", ("toolu_1", "other__count", {})),)), HELLO)
    await _run(engine, mcp_servers={**bench.servers(), "other": other.servers()["bench"]})
    names = [tool["name"] for tool in server.requests[0]["tools"]]
    assert len(names) == len(set(names)) == 12
    assert (bench.runs, other.runs) == ([], ["count"])


async def test_turns_share_connections(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(HELLO)
    for _ in range(5):
        await _run(engine)
    assert server.connections == 1
    await asyncio.gather(*(_run(engine) for _ in range(20)))
    assert server.connections <= 20


@pytest.fixture
async def bench() -> Bench:
    """Tools to call."""
    return Bench()


@proves("runs.options")
@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        (NamedTool(name="add"), {"type": "tool", "name": "add"}),
    ],
)
async def test_a_choice_of_tools_is_sent(
    server: ModelServer, engine: AnthropicEngine, choice: ToolChoice, sent: dict[str, Any]
) -> None:
    server.reply(HELLO, HELLO)
    await _run(engine, mcp_servers=Bench().servers(), tool_choice=choice)
    assert server.requests[0]["tool_choice"] == sent
