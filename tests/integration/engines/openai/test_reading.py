"""What the engine makes of responses: reasoning, calls, counts, costs, refused content."""

import asyncio
import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from nova_workers.contracts.content import ORIGIN, ContentBlock, Message, text_block
from nova_workers.contracts.engine import EngineOptions, EngineResult, InProcessMcpServer
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.openai import OpenAIEngine
from nova_workers.engines.openai.provider import WireForm
from nova_workers.engines.prices import ModelPrice
from tests.contract.engines.stage import Bench, TurnRecorder
from tests.integration.engines.openai.conftest import MakeEngine
from tests.requirements import proves
from tests.support.servers.model_server import ModelServer, Part, Reply, Status, Stream

THINKS = Part("thinking", ["Let me ", "think."])
CALLS = Part("tool", ("call_1", "add", {"a": 1, "b": 2}))
DONE = Stream((Part("text", ["Three."]),))
IMAGE: ContentBlock = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"\x89PNG").decode()},
}
PRICE = ModelPrice(input=1.0, output=10.0, cache_read=0.1, cache_write=2.0)


async def _turn(
    engine: OpenAIEngine, server: ModelServer, *replies: Reply, message: Any = "hi", **given: Any
) -> EngineResult:
    server.reply(*replies)
    options = EngineOptions(model="local/some-model", mcp_servers=Bench().servers(), **given)
    return await asyncio.wait_for(engine.run(message, options, "sandbox"), 60)


@proves("engine.origin")
async def test_encrypted_reasoning_goes_back_to_the_model_that_made_it_and_to_no_other(
    server: ModelServer, make_engine: MakeEngine
) -> None:
    engine = make_engine("responses")
    result = await _turn(engine, server, Stream((THINKS, CALLS)), DONE)
    item = {
        "id": "rs_1_0",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Let me think."}],
        "encrypted_content": "enc_1_0",
    }
    assert [each.get("type") for each in server.requests[-1]["input"]] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert server.requests[-1]["input"][1] == item
    # A later turn of any worker: the ledger's messages are all that there is.
    history = (Message("user", (text_block("hi"),)), *result.messages)
    await _turn(engine, server, DONE, history=history)
    assert item in server.requests[-1]["input"]
    server.reply(DONE)
    await engine.run("hi", EngineOptions(model="local/another-model", history=history), "sandbox")
    assert "enc_1_0" not in json.dumps(server.requests[-1])
    anthropic = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0)
    told = await anthropic.run("hi", EngineOptions(model="sonnet", history=history), "sandbox")
    assert told.error is None
    assert ORIGIN not in json.dumps(server.requests[-1])
    assert "think" not in json.dumps(server.requests[-1])
    await anthropic.close()


@pytest.mark.parametrize("returned", [True, False])
async def test_reasoning_in_a_field_goes_back_within_the_turn_alone(
    server: ModelServer, make_engine: MakeEngine, *, returned: bool
) -> None:
    engine = make_engine("chat", return_reasoning=returned)
    result = await _turn(engine, server, Stream((THINKS, CALLS)), DONE)
    said = server.requests[-1]["messages"][1]
    assert said.get("reasoning_content") == ("Let me think." if returned else None)
    await _turn(engine, server, DONE, history=(Message("user", (text_block("hi"),)), *result.messages))
    assert "reasoning_content" not in json.dumps(server.requests[-1])


@pytest.mark.parametrize("pieces", [["Let me ", "think."], ["Let me ", "Let me think."]], ids=["new", "so far"])
async def test_reasoning_details_are_put_together_and_go_back_as_a_list(
    server: ModelServer, make_engine: MakeEngine, recorder: TurnRecorder, pieces: list[str]
) -> None:
    engine = make_engine("chat", reasoning_field="reasoning_details")
    details = [
        Part("delta", {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": piece}]})
        for piece in pieces
    ]
    server.reply(Stream((*details, CALLS)), DONE)
    options = EngineOptions(model="local/m", mcp_servers=Bench().servers())
    await engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert [entry[1] for entry in recorder.log if entry[0] == "reasoning"] == ["Let me ", "think."]
    whole = {"type": "reasoning.text", "index": 0, "text": "Let me think."}
    assert server.requests[-1]["messages"][1]["reasoning_details"] == [whole]


@pytest.mark.parametrize("given", ['{"a": 1, ', "[1]", "7"])
async def test_arguments_that_are_no_object_are_a_tool_error_for_the_model(
    server: ModelServer, engine: OpenAIEngine, given: str
) -> None:
    result = await _turn(engine, server, Stream((Part("tool", ("call_1", "add", given)),)), DONE)
    (call,) = result.tool_calls
    assert call.status == "failed"
    assert "This call was not made" in (call.error or "")
    assert result.text == "Three."
    assert "This call was not made" in json.dumps(server.requests[-1])


async def test_a_call_without_arguments_has_an_empty_input(server: ModelServer, engine: OpenAIEngine) -> None:
    result = await _turn(engine, server, Stream((Part("tool", ("call_1", "count", "")),)), DONE)
    assert [(call.params, call.status) for call in result.tool_calls] == [({}, "completed")]


def _piece(**function: Any) -> dict[str, Any]:
    head = {name: function.pop(name) for name in ("index", "id") if name in function}
    return {"tool_calls": [{**head, "type": "function", "function": function}]}


@pytest.mark.parametrize(
    "deltas",
    [
        # Two calls with the index of the first, each whole in one piece.
        [
            _piece(index=0, id="c1", name="count", arguments="{}"),
            _piece(index=0, id="c2", name="count", arguments="{}"),
        ],
        # No index.
        [_piece(id=id, name="count", arguments="{}") for id in ("c1", "c2")],
        # Arguments as a value, and no id.
        [_piece(index=0, name="count", arguments={}), _piece(index=1, name="count", arguments={})],
    ],
)
async def test_calls_of_servers_with_forms_of_their_own_are_understood(
    server: ModelServer, make_engine: MakeEngine, deltas: list[dict[str, Any]]
) -> None:
    parts = tuple(Part("delta", delta) for delta in deltas)
    result = await _turn(make_engine("chat"), server, Stream(parts, stop_reason="end_turn"), DONE)
    assert [(call.tool_name, call.params, call.status) for call in result.tool_calls] == [
        ("count", {}, "completed")
    ] * 2
    assert len({call.id for call in result.tool_calls}) == 2


async def test_cached_tokens_are_counted_apart_and_cost_their_own_price(
    server: ModelServer, make_engine: MakeEngine, api: WireForm
) -> None:
    usage = {
        "input_tokens": 1_000,
        "output_tokens": 100,
        "cache_read_input_tokens": 5_000,
        "cache_creation_input_tokens": 200,
        "output_tokens_details": {"thinking_tokens": 40},
    }
    engine = make_engine(api, prices={"*": PRICE})
    result = await _turn(engine, server, Stream((Part("text", ["Well"]),), usage=usage))
    cost_usd = (1_000 * 1 + 100 * 10 + 5_000 * 0.1 + 200 * 2) / 1_000_000
    assert result.usage.tokens.cost_usd == pytest.approx(cost_usd)
    assert replace(result.usage.tokens, cost_usd=None) == TokenUsage(1_000, 100, 5_000, 200, 40, None)


@pytest.mark.parametrize("usage", [{}, {"input_tokens": 0, "output_tokens": 0}])
async def test_a_server_that_sends_no_counts_is_estimated(
    server: ModelServer, engine: OpenAIEngine, usage: dict[str, int]
) -> None:
    result = await _turn(engine, server, Stream((Part("text", ["word " * 700]),), usage=usage))
    assert 900 < result.usage.tokens.output_tokens < 1_100
    assert result.usage.tokens.input_tokens > 0
    assert result.usage.tokens.cost_usd is None


async def test_a_cost_budget_needs_a_price(server: ModelServer, make_engine: MakeEngine, api: WireForm) -> None:
    result = await _turn(make_engine(api), server, DONE, cost_budget_usd=1.0)
    assert result.error is not None
    assert "the price of model 'local/some-model' is not known" in result.error.message
    assert server.requests == []
    used = {"input_tokens": 10, "output_tokens": 200_000}
    dear = Stream((CALLS,), usage=used)
    result = await _turn(make_engine(api, prices={"*": PRICE}), server, dear, DONE, cost_budget_usd=1.0)
    assert (result.stop_reason, result.limit) == ("max_tokens", "cost")


@pytest.mark.parametrize(
    "refusal",
    [
        Status(400, "x", "Invalid image: cannot decode"),
        Status(400, "image_parse_error", "You uploaded an unsupported file", detail="image_parse_error"),
        Status(400, "BadRequestError", "some-model is not a multimodal model"),
    ],
)
async def test_an_image_that_the_provider_refuses_gives_way_to_a_note(
    server: ModelServer, engine: OpenAIEngine, refusal: Status
) -> None:
    result = await _turn(engine, server, refusal, DONE, message=(text_block("Look:"), IMAGE))
    assert (result.error, result.text) == (None, "Three.")
    assert "[Left out, since the model provider refused it: image." in server.conversation()[-1][1]


async def test_a_refusal_for_its_policy_names_no_image(server: ModelServer, engine: OpenAIEngine) -> None:
    refusal = Status(400, "x", "Your image request was blocked", detail="content_policy_violation")
    # The same request again, and without the image, which is sent again where that does not help.
    result = await _turn(engine, server, refusal, refusal, refusal, DONE, message=(text_block("Look:"), IMAGE))
    assert result.error is not None
    assert len(server.requests) == 3


async def test_a_call_that_only_reads_begins_while_the_response_streams(
    server: ModelServer, engine: OpenAIEngine
) -> None:
    began = asyncio.Event()

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        hints = ToolAnnotations(read_only_hint=True)
        return ListToolsResult(tools=[Tool(name="look", input_schema={"type": "object"}, annotations=hints)])

    async def call_tool(_: Any, __: Any) -> CallToolResult:
        began.set()
        return CallToolResult(content=[TextContent(text="seen")])

    tools = {"s": InProcessMcpServer(Server("s", on_list_tools=list_tools, on_call_tool=call_tool))}
    # The second call begins, so the first is whole; the stream goes on only when the first has begun to run.
    first, second = (Part("tool", (f"c{number}", "look", {})) for number in (1, 2))
    server.reply(Stream((first, second, Part("wait", began))), DONE)
    result = await asyncio.wait_for(engine.run("hi", EngineOptions(model="local/m", mcp_servers=tools), "sandbox"), 60)
    assert [call.status for call in result.tool_calls] == ["completed"] * 2
