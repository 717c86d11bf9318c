"""Each attempt is reserved in the budgets that the turn shares, before it is made."""

from __future__ import annotations

import pytest

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.engine import EngineCallbacks, SubagentConfig
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.prices import ModelPrice
from tests.contract.engines.stage import Bench
from tests.integration.engines.resilience.stage import BROKEN, FINE, MakeEngine, error_of, model, turn
from tests.requirements import proves
from tests.support.harness.planned_allowance import PlannedAllowance
from tests.support.servers.model_server import ModelServer, Part, Stream

SONNET, HAIKU = "claude-sonnet-5-5", "claude-haiku-4-5"
_PRICES = {SONNET: ModelPrice(3.0, 15.0, 0.3, 3.75), HAIKU: ModelPrice(1.0, 5.0, 0.1, 1.25)}
_TOOL = Stream((Part("tool", ("toolu_1", "add", {"a": 1, "b": 2})),))
_CUT = Stream((Part("text", ["Half"]),), stop_reason="max_tokens")


@proves("budgets.reserved")
async def test_a_call_is_reserved_with_all_that_it_may_use(server: ModelServer, make: MakeEngine) -> None:
    server.reply(FINE)
    allowance = PlannedAllowance(10**6)
    result = await turn(make(prices=_PRICES), "x" * 10_000, allowance=allowance, max_tokens=4_000)
    (bound,), (reserved,) = allowance.bounds, allowance.reserved
    assert (bound.model, bound.output_tokens, bound.least_output_tokens) == (SONNET, 4_000, 1_024)
    assert 5_000 <= bound.input_tokens < 6_000
    # The write to the prompt cache is the dearest way to read.
    assert bound.price == pytest.approx((3.75e-6, 15e-6))
    assert reserved.used == [result.usage.tokens]
    assert server.requests[0]["max_tokens"] == 4_000


@proves("budgets.reserved")
async def test_an_answer_is_no_longer_than_the_budget_affords(server: ModelServer, make: MakeEngine) -> None:
    server.reply(_CUT)
    result = await turn(make(prices=_PRICES), allowance=PlannedAllowance(1_500), max_tokens=4_000)
    assert server.requests[0]["max_tokens"] == 1_500
    assert (result.text, result.stop_reason, result.limit) == ("Half", "max_tokens", "cost")


@proves("budgets.reserved")
async def test_a_refused_call_is_not_made(server: ModelServer, make: MakeEngine) -> None:
    error = error_of(await turn(make(prices=_PRICES), allowance=PlannedAllowance()))
    assert (error.kind, error.message, server.requests) == ("budget_exceeded", "Spent.", [])


@proves("budgets.reserved")
async def test_a_turn_ends_with_the_step_before_a_refused_call(server: ModelServer, make: MakeEngine) -> None:
    server.reply(_TOOL)
    result = await turn(make(prices=_PRICES), allowance=PlannedAllowance(10**6), mcp_servers=Bench().servers())
    assert (result.error, result.stop_reason, result.limit) == (None, "max_tokens", "cost")
    assert (len(server.requests), len(result.tool_calls)) == (1, 1)


async def test_what_was_counted_is_exact_for_the_next_call(server: ModelServer, make: MakeEngine) -> None:
    server.reply(_TOOL, FINE)
    allowance = PlannedAllowance(10**6, 10**6)
    await turn(make(prices=_PRICES), "x" * 10_000, allowance=allowance, mcp_servers=Bench().servers())
    first, second = allowance.bounds
    assert second.input_tokens < first.input_tokens


async def test_each_attempt_is_reserved_and_settled(server: ModelServer, make: MakeEngine) -> None:
    server.reply_when(model(SONNET), BROKEN)
    server.reply(FINE)
    allowance = PlannedAllowance(*[10**6] * 9)
    result = await turn(make(prices=_PRICES), allowance=allowance, fallback_models=(HAIKU,))
    assert result.model == HAIKU
    assert [bound.model for bound in allowance.bounds] == [SONNET] * (len(allowance.bounds) - 1) + [HAIKU]
    assert [each.used for each in allowance.reserved[:-1]] == [[TokenUsage()]] * (len(allowance.bounds) - 1)
    assert allowance.reserved[-1].used == [result.usage.tokens]


async def test_a_stopped_call_is_not_open_any_more(server: ModelServer, make: MakeEngine) -> None:
    server.reply(FINE)
    allowance, abort = PlannedAllowance(10**6), AbortSignal()
    callbacks = EngineCallbacks(on_token=lambda _: abort.abort("cancel"), on_restart=lambda: None)
    result = await turn(make(prices=_PRICES), allowance=allowance, abort=abort, callbacks=callbacks)
    assert result.stop_reason == "aborted"
    assert len(allowance.reserved[0].used) == 1


async def test_calls_of_subagents_are_reserved(server: ModelServer, make: MakeEngine) -> None:
    server.reply(Stream((Part("tool", ("toolu_1", "Task", {"agent": "scout", "prompt": "Look."})),)), FINE, FINE)
    allowance = PlannedAllowance(*[10**6] * 3)
    agents = {"scout": SubagentConfig("Finds things.", "You are a scout.", model=HAIKU)}
    await turn(make(prices=_PRICES), allowance=allowance, agents=agents)
    assert ([bound.model for bound in allowance.bounds], allowance.nested_calls) == ([SONNET, HAIKU, SONNET], 1)
