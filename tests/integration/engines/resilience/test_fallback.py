"""If a model is unavailable, the next of the chain answers, if the conversation fits."""

import asyncio
from dataclasses import replace

import pytest
from dirty_equals import IsStr

from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineCallbacks, StepRecord, StepVerdict
from tests.contract.engines.stage import Bench
from tests.integration.engines.resilience.conftest import HASTY
from tests.integration.engines.resilience.stage import (
    BROKEN,
    FINE,
    LIMITED,
    CountingMetrics,
    MakeEngine,
    error_of,
    model,
    models_asked,
    turn,
)
from tests.requirements import proves
from tests.support.servers.model_server import Hang, ModelServer, Part, Reply, Status, Stream
from tests.support.waiting import pass_time, until

SONNET, HAIKU, OPUS = "claude-sonnet-5-5", "claude-haiku-4-5", "claude-opus-5-5"


@pytest.mark.parametrize(
    "trouble",
    [LIMITED, BROKEN, Status(404, "not_found_error", "model: gone"), Status(403, "permission_error", "not yours")],
    ids=["limited", "broken", "gone", "forbidden"],
)
async def test_the_next_model_answers(
    server: ModelServer, make: MakeEngine, counts: CountingMetrics, trouble: Reply
) -> None:
    server.reply_when(model(SONNET), trouble)
    server.reply(FINE)
    steps: list[StepRecord] = []

    async def on_step(step: StepRecord) -> StepVerdict:
        steps.append(step)
        return "continue"

    result = await turn(make(), callbacks=EngineCallbacks(on_step=on_step), fallback_models=(HAIKU,))
    assert (result.text, result.model, [step.model for step in steps]) == ("Well done", HAIKU, [HAIKU])
    assert counts.fallbacks == [(SONNET, HAIKU)]


async def test_the_turn_stays_with_the_model_that_it_fell_back_to(server: ModelServer, make: MakeEngine) -> None:
    server.reply_when(model(SONNET), BROKEN)
    server.reply(Stream((Part("tool", ("toolu_1", "add", {"a": 1, "b": 2})),)), FINE)
    result = await turn(make(), fallback_models=(HAIKU,), mcp_servers=Bench().servers())
    assert (result.text, models_asked(server)[-2:]) == ("Well done", [HAIKU, HAIKU])
    assert models_asked(server).count(SONNET) == 3


async def test_all_models_of_the_chain_are_tried(server: ModelServer, make: MakeEngine) -> None:
    server.reply_when(model(SONNET), LIMITED)
    server.reply_when(model(HAIKU), LIMITED)
    server.reply(FINE)
    assert (await turn(make(), fallback_models=(HAIKU, OPUS))).model == OPUS


@proves("engine.first-byte")
async def test_a_model_whose_server_never_answers_is_replaced_by_the_next(
    server: ModelServer, make: MakeEngine, counts: CountingMetrics
) -> None:
    server.reply_when(model(SONNET), Hang())
    server.reply(FINE)
    engine = make(first_byte_timeout_s=20, policy=replace(HASTY, max_retries=1))
    running = asyncio.create_task(turn(engine, fallback_models=(HAIKU,)))
    for asked in (1, 2):
        await until(lambda asked=asked: len(server.requests) == asked)
        await pass_time(21)
    result = await running
    assert (result.model, models_asked(server)) == (HAIKU, [SONNET, SONNET, HAIKU])
    assert counts.fallbacks == [(SONNET, HAIKU)]


async def test_the_end_of_the_chain_is_the_end_of_the_turn(server: ModelServer, make: MakeEngine) -> None:
    server.reply(Status(404, "not_found_error", "model: gone"))
    error = error_of(await turn(make(), fallback_models=(HAIKU, OPUS)))
    assert (error.kind, models_asked(server)) == ("model_error", [SONNET, HAIKU, OPUS])


async def test_the_response_is_cut_to_what_the_smaller_window_leaves(server: ModelServer, make: MakeEngine) -> None:
    server.reply_when(model(SONNET), BROKEN)
    server.reply(FINE)
    await turn(make(context_windows={HAIKU: 6_000}), "x" * 7_000, fallback_models=(HAIKU,), max_tokens=8_000)
    asked = server.requests[-1]
    assert server.requests[0]["max_tokens"] == 8_000
    assert 3_500 < asked["max_tokens"] < 4_000


async def test_thinking_shrinks_with_the_response(server: ModelServer, make: MakeEngine) -> None:
    server.reply_when(model(SONNET), BROKEN)
    server.reply(FINE)
    engine = make(context_windows={HAIKU: 6_000})
    await turn(engine, fallback_models=(HAIKU,), max_tokens=20_000, thinking_budget_tokens=10_000)
    asked = server.requests[-1]
    assert asked["max_tokens"] < 6_000
    assert asked["thinking"]["budget_tokens"] == asked["max_tokens"] - 1_024


async def test_a_model_whose_window_is_too_small_is_skipped(
    server: ModelServer, make: MakeEngine, counts: CountingMetrics
) -> None:
    server.reply_when(model(SONNET), BROKEN)
    server.reply(FINE)
    history = (Message("user", (text_block("y" * 20_000),)), Message("assistant", (text_block("Yes"),)))
    result = await turn(make(context_windows={HAIKU: 6_000}), history=history, fallback_models=(HAIKU, OPUS))
    assert (result.model, HAIKU in models_asked(server)) == (OPUS, False)
    assert counts.fallbacks == [(SONNET, OPUS)]


async def test_if_no_model_fits_the_first_one_is_waited_for(server: ModelServer, make: MakeEngine) -> None:
    short = Status(429, "rate_limit_error", "slow", headers={"retry-after-ms": "20"})
    server.reply_when(model(SONNET), short, FINE)
    result = await turn(make(context_windows={HAIKU: 1_000}), fallback_models=(HAIKU,))
    assert (result.text, models_asked(server)) == ("Well done", [SONNET, SONNET])


async def test_a_chain_may_have_aliases(server: ModelServer, make: MakeEngine) -> None:
    server.reply(Status(404, "not_found_error", "model: gone"), FINE)
    await turn(make(aliases={"swift": HAIKU}), fallback_models=("swift",))
    assert models_asked(server) == [SONNET, HAIKU]


async def test_streamed_text_of_the_first_model_becomes_void(server: ModelServer, make: MakeEngine) -> None:
    server.reply_when(model(SONNET), Stream((Part("text", ["So far"]), Part("cut"))))
    server.reply(FINE)
    seen: list[str] = []
    callbacks = EngineCallbacks(on_token=seen.append, on_restart=seen.clear)
    result = await turn(make(), callbacks=callbacks, fallback_models=(HAIKU,))
    assert ("".join(seen), result.text) == ("Well done", "Well done")
    assert result.messages == (Message("assistant", ({"type": "text", "text": IsStr(regex="Well done")},)),)
