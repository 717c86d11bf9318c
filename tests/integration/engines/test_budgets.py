"""Bounds on a turn's usage: it ends cleanly at the first step that reaches one."""

from typing import Any

import pytest

from nova_workers.contracts.engine import EngineCallbacks, EngineEvent, EngineOptions, EngineResult
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.anthropic import AnthropicEngine
from tests.contract.engines.stage import Bench, TurnRecorder, assert_valid
from tests.support.servers.model_server import ModelServer, Part, Status, Stream

USAGE = {"input_tokens": 900, "output_tokens": 100}
"""In dollars, for the model below: 900 x 2 + 100 x 10, in millionths."""
COST_USD = 0.0028


def _calls(number: int) -> Stream:
    return Stream((Part("text", ["On"]), Part("tool", (f"toolu_{number}", "count", {}))), usage=USAGE)


async def _run(
    engine: AnthropicEngine, server: ModelServer, recorder: TurnRecorder | None = None, **options: Any
) -> EngineResult:
    server.reply(*(_calls(number) for number in range(10)), Stream((Part("text", ["Done"]),), usage=USAGE))
    given = EngineOptions(model="claude-sonnet-5-5", mcp_servers=Bench().servers(), **options)
    return await engine.run("hi", given, "sandbox", callbacks=(recorder or TurnRecorder()).callbacks())


@pytest.mark.parametrize(
    ("bound", "limit"),
    [({"token_budget": 2_500}, "tokens"), ({"cost_budget_usd": 2.5 * COST_USD}, "cost")],
    ids=["tokens", "cost"],
)
async def test_a_turn_ends_cleanly_at_the_step_that_reaches_its_bound(
    engine: AnthropicEngine, server: ModelServer, bound: dict[str, Any], limit: str
) -> None:
    recorder = TurnRecorder()
    result = await _run(engine, server, recorder, **bound)
    assert (result.stop_reason, result.limit, result.error) == ("max_tokens", limit, None)
    assert (len(server.requests), result.usage.turns, result.text) == (3, 3, "On")
    assert [call.status for call in result.tool_calls] == ["completed"] * 3
    assert [record.final for record in recorder.records] == [False, False, True]
    assert_valid(result.messages)


async def test_a_turn_within_its_bounds_is_not_disturbed(engine: AnthropicEngine, server: ModelServer) -> None:
    result = await _run(engine, server, token_budget=20_000, cost_budget_usd=1.0)
    assert (result.stop_reason, result.limit, result.text) == ("end_turn", None, "Done")


async def test_an_answer_that_reaches_the_bound_with_its_last_word_is_an_answer(
    engine: AnthropicEngine, server: ModelServer
) -> None:
    server.reply(Stream((Part("text", ["Done"]),), usage=USAGE))
    result = await engine.run("hi", EngineOptions(token_budget=1), "sandbox")
    assert (result.stop_reason, result.limit, result.text) == ("end_turn", None, "Done")


async def test_usage_of_earlier_attempts_counts(engine: AnthropicEngine, server: ModelServer) -> None:
    result = await _run(engine, server, token_budget=2_500, spent=TokenUsage(1_400, 100))
    assert (len(server.requests), result.limit) == (1, "tokens")
    assert result.usage.tokens.total_tokens == 1_000
    server.requests.clear()
    result = await _run(engine, server, token_budget=2_500, spent=TokenUsage(2_400, 100))
    assert (server.requests, result.stop_reason, result.messages) == ([], "max_tokens", ())


async def test_the_result_event_names_the_bound(engine: AnthropicEngine, server: ModelServer) -> None:
    server.reply(_calls(0))
    events: list[EngineEvent] = []
    options = EngineOptions(mcp_servers=Bench().servers(), token_budget=1)
    await engine.run("hi", options, "sandbox", callbacks=EngineCallbacks(on_event=events.append))
    assert (events[-1].type, events[-1].data["limit"]) == ("result", "tokens")


async def test_a_bound_on_turns_is_distinguished(engine: AnthropicEngine, server: ModelServer) -> None:
    result = await _run(engine, server, max_turns=2, token_budget=100_000)
    assert (result.stop_reason, result.limit) == ("tool_use", "turns")


async def test_a_cost_bound_without_a_known_price_is_refused_before_the_first_call(
    engine: AnthropicEngine, server: ModelServer
) -> None:
    result = await engine.run("hi", EngineOptions(model="my-own-model", cost_budget_usd=1.0), "sandbox")
    assert result.error is not None
    assert (result.stop_reason, result.error.retryable, server.requests) == ("error", False, [])
    assert "the price of model 'my-own-model' is not known" in result.error.message
    assert "NOVA_MODEL__PRICES" in result.error.message
    assert "max_cost_usd_per_day of the tenant, the agent or the trigger" in result.error.message


async def test_a_fallback_without_a_price_ends_a_turn_with_a_cost_bound(
    engine: AnthropicEngine, server: ModelServer
) -> None:
    server.reply(Status(404, "not_found_error", "no such model"), _calls(0))
    options = EngineOptions(
        model="claude-sonnet-5-5",
        fallback_models=("who-knows",),
        mcp_servers=Bench().servers(),
        cost_budget_usd=1.0,
    )
    result = await engine.run("hi", options, "sandbox")
    assert result.error is not None
    assert "the price of its model is unknown" in result.error.message
    assert_valid(result.messages)
