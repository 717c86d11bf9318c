"""The cost of a call: by the operator's price, else by the list; else tokens are counted and the cost is unknown."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.prices import ModelPrice
from tests.integration.engines.resilience.stage import FINE, MakeEngine, turn
from tests.support.servers.model_server import ModelServer, Stream

USED = Stream(
    FINE.parts,
    usage={
        "input_tokens": 1_000,
        "output_tokens": 2_000,
        "cache_read_input_tokens": 3_000,
        "cache_creation_input_tokens": 4_000,
    },
)
PRICE = ModelPrice(input=1.0, output=10.0, cache_read=0.1, cache_write=2.0)
DEAR = ModelPrice(input=1_000.0, output=1_000.0, cache_read=1_000.0, cache_write=1_000.0)


async def test_a_custom_model_has_the_operators_price(server: ModelServer, make: MakeEngine) -> None:
    server.reply(USED)
    result = await turn(make(prices={"house-model": PRICE}), model="house-model")
    assert result.usage.tokens == TokenUsage(1_000, 2_000, 3_000, 4_000, cost_usd=0.0293)


async def test_an_alias_stands_for_its_model(server: ModelServer, make: MakeEngine) -> None:
    server.reply(USED)
    engine = make(prices={"swift": PRICE}, aliases={"swift": "claude-haiku-4-5"})
    assert (await turn(engine, model="claude-haiku-4-5")).usage.tokens.cost_usd == 0.0293


@pytest.mark.parametrize(
    ("prices", "asked", "answers", "cost_usd"),
    [
        pytest.param({"haiku": PRICE}, "haiku", "claude-haiku-4-5-20251001", 0.0293, id="the operator's, as asked"),
        pytest.param({"house-1": PRICE}, "haiku", "house-1", 0.0293, id="the operator's, as answered"),
        pytest.param({"a": DEAR, "b": PRICE}, "a", "b", 0.0293, id="the answer's before the request's"),
        pytest.param({}, "claude-haiku-4-5", "house-1", 0.0163, id="the list's, as asked"),
    ],
)
async def test_a_price_is_found_by_the_name_of_the_answering_or_of_the_requested_model(
    server: ModelServer, make: MakeEngine, prices: dict[str, ModelPrice], asked: str, answers: str, cost_usd: float
) -> None:
    server.reply(replace(USED, model=answers))
    result = await turn(make(prices=prices), model=asked)
    assert result.usage.tokens.cost_usd == pytest.approx(cost_usd)
    assert result.model == answers


async def test_an_unknown_price_is_logged_once(server: ModelServer, make: MakeEngine) -> None:
    server.reply(USED)
    engine = make()
    with capture_logs() as logs:
        results = [await turn(engine, model="house-model") for _ in range(3)]
    assert [result.usage.tokens.cost_usd for result in results] == [None] * 3
    assert {result.usage.tokens.output_tokens for result in results} == {2_000}
    assert [line["event"] for line in logs if line["event"] == "model_price_unknown"] == ["model_price_unknown"]


SEARCHED = Stream(
    FINE.parts,
    usage={**USED.usage, "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 0}},
)


async def test_the_providers_web_searches_have_the_built_in_price(server: ModelServer, make: MakeEngine) -> None:
    server.reply(USED, SEARCHED)
    engine = make()
    plain, searched = [(await turn(engine)).usage.tokens.cost_usd or 0.0 for _ in range(2)]
    assert searched - plain == pytest.approx(0.03)


async def test_the_providers_web_searches_have_the_operators_price(server: ModelServer, make: MakeEngine) -> None:
    server.reply(SEARCHED)
    engine = make(prices={"house-model": replace(PRICE, web_search=100.0)})
    assert (await turn(engine, model="house-model")).usage.tokens.cost_usd == pytest.approx(0.0293 + 0.3)
