"""Which provider and model a name means, and what happens when they cannot be had."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from nova_workers.base.errors import ConfigurationError, EngineFailure
from nova_workers.contracts.engine import EngineCallbacks, EngineOptions, EngineResult, SubagentConfig
from nova_workers.engines.openai import Catalog, Key, OpenAIEngine, OpenAIProvider
from nova_workers.engines.openai.provider import WireForm
from tests.integration.engines.openai.conftest import SECRET_KEY, MakeEngine
from tests.requirements import proves
from tests.support.servers.model_server import ModelServer, Part, Status, Stream, model_server

FINE = Stream((Part("text", ["Well"]),))
REFUSED = Status(401, "x", "wrong key")
LIMITED = Status(429, "x", "slow down", headers={"retry-after": "60"})

VLLM = OpenAIProvider("vllm", "http://127.0.0.1:1/v1", "chat", models=("qwen", "org/llama"))
OPENAI = OpenAIProvider()


def _noting(left_out: list[str]) -> EngineCallbacks:
    return EngineCallbacks(on_option_left_out=lambda option, _: left_out.append(option))


async def _turn(engine: OpenAIEngine, **given: Any) -> EngineResult:
    options = replace(EngineOptions(model="sonnet"), **given)
    return await asyncio.wait_for(engine.run("hi", options, "sandbox"), 60)


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("vllm/anything", "vllm/anything"),
        ("vllm/org/llama", "vllm/org/llama"),
        ("qwen", "vllm/qwen"),
        ("org/llama", "vllm/org/llama"),
        ("gpt-6-luna", "openai/gpt-6-luna"),
        ("openai/gpt-6-luna", "openai/gpt-6-luna"),
        ("ft:gpt-4o/x", "openai/ft:gpt-4o/x"),
        ("haiku", "openai/gpt-small"),
        ("sonnet", "vllm/qwen"),
        ("fast", "openai/gpt-fast"),
    ],
)
def test_a_name_means_one_model_of_one_provider(name: str, id: str) -> None:
    catalog = Catalog([VLLM, OPENAI], aliases={"haiku": "gpt-small", "fast": "openai/gpt-fast"}, default_model="qwen")
    assert catalog.id(name) == id


def test_a_name_that_no_provider_serves_is_an_error_with_the_providers() -> None:
    with pytest.raises(EngineFailure, match=r"No provider .* serves the model 'gpt-5'.*\['vllm'\]"):
        Catalog([VLLM]).id("gpt-5")
    with pytest.raises(EngineFailure, match="'sonnet' means no model"):
        Catalog([VLLM]).id("sonnet")


def test_two_providers_with_one_name_or_one_model_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="same name: 'vllm'"):
        Catalog([VLLM, VLLM])
    other = OpenAIProvider("other", "http://127.0.0.1:2/v1", "chat", models=("qwen",))
    with pytest.raises(ConfigurationError, match="both list the model 'qwen'"):
        Catalog([VLLM, other])


def test_windows_are_the_operators_then_those_of_the_list_then_the_default() -> None:
    local = OpenAIProvider("local", "http://x/v1", "chat", context_windows={"small": 4_096, "*": 32_768})
    listed = OpenAIProvider(price_list="openai")
    catalog = Catalog([local, listed], unknown_tokens=100_000)
    assert catalog.context_tokens("local/small") == 4_096
    assert catalog.context_tokens("local/other") == 32_768
    assert catalog.context_tokens("gpt-5") == 400_000
    assert catalog.context_tokens("unheard-of") == 100_000
    assert Catalog([VLLM]).context_tokens("unheard-of") == 200_000


@pytest.mark.parametrize(
    ("api", "option", "given", "refusal"),
    [
        (
            "chat",
            "temperature",
            {"temperature": 0.5},
            '{"message": "Only the default (1).", "param": "temperature", "code": "unsupported_value"}',
        ),
        (
            "chat",
            "reasoning_effort",
            {"thinking_budget_tokens": 1},
            '"Unrecognized argument: reasoning_effort"',
        ),
        (
            "responses",
            "reasoning",
            {"thinking_budget_tokens": 1},
            '{"message": "Unsupported parameter: not with this model.", "param": "reasoning.effort"}',
        ),
    ],
)
async def test_an_option_that_a_model_refuses_is_left_out_from_then_on(
    server: ModelServer, make_engine: MakeEngine, api: WireForm, option: str, given: dict[str, Any], refusal: str
) -> None:
    server.reply(Status(400, raw=f'{{"error": {refusal}}}'.encode()), FINE)
    engine, left_out = make_engine(api), list[str]()
    for _ in range(2):
        result = await engine.run("hi", EngineOptions(model="local/m", **given), "sandbox", callbacks=_noting(left_out))
        assert result.error is None
    assert [option in request for request in server.requests] == [True, False, False]
    assert left_out == [option] * 2


async def test_an_effort_of_another_name_is_refused_and_not_left_out(
    server: ModelServer, make_engine: MakeEngine
) -> None:
    server.reply(Status(400, raw=b'{"error": {"message": "Invalid value: \'hihg\'.", "param": "reasoning_effort"}}'))
    options = EngineOptions(model="local/m", engine_config={"reasoning_effort": "hihg"})
    result = await make_engine("chat").run("hi", options, "sandbox")
    assert result.error is not None
    assert len(server.requests) == 1


async def test_without_a_key_for_openai_a_turn_fails_and_names_the_setting() -> None:
    engine = OpenAIEngine(Catalog([OPENAI], default_model="gpt-6-luna"), max_retries=0)
    result = await _turn(engine)
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("auth_failure", False)
    assert "OPENAI_API_KEY" in result.error.message
    await engine.close()


async def test_the_next_key_of_a_provider_is_used_at_once(server: ModelServer, make_engine: MakeEngine) -> None:
    engine = make_engine("chat", keys=(Key("main", "key-one"), Key("spare", "key-two")))
    server.reply(REFUSED, FINE)
    result = await _turn(engine)
    assert result.text == "Well"
    assert [headers["authorization"] for headers in server.headers] == ["Bearer key-one", "Bearer key-two"]
    # The refused key rests: the next turn does not ask with it.
    server.reply(FINE)
    await _turn(engine)
    assert server.headers[-1]["authorization"] == "Bearer key-two"


@proves("engine.key-scope")
@pytest.mark.parametrize("failure", [REFUSED, LIMITED, Status(500), Status(404, "x", "no such model")])
async def test_a_turn_falls_back_to_a_model_of_another_provider_and_wire_form(
    server: ModelServer, make_engine: MakeEngine, failure: Status
) -> None:
    async with model_server() as second:
        other = OpenAIProvider("other", f"{second.url}/v1", "responses", (Key(api_key="other-key"),))
        engine = make_engine("chat", other, fallbacks=("other/large",))
        server.reply(failure)
        second.reply(FINE)
        result = await _turn(engine)
        assert (result.text, result.error) == ("Well", None)
        assert (second.paths, second.requests[0]["model"]) == (["/v1/responses"], "large")
        sent = [each.headers[0]["authorization"] for each in (server, second)]
        assert sent == [f"Bearer {SECRET_KEY}", "Bearer other-key"]


async def test_fallbacks_of_the_fleet_count_where_the_engine_has_none(
    server: ModelServer, make_engine: MakeEngine
) -> None:
    server.reply(Status(404, "x", "no such model"), FINE)
    result = await _turn(make_engine("chat"), fallback_models=("local/second",))
    assert result.text == "Well"
    assert [request["model"] for request in server.requests] == ["some-model", "second"]


async def test_a_response_that_broke_off_is_asked_for_again(server: ModelServer, make_engine: MakeEngine) -> None:
    server.reply(Stream((Part("cut"),)), Status(503), FINE)
    result = await _turn(make_engine("responses", max_retries=3))
    assert result.text == "Well"
    assert len(server.requests) == 3


async def test_a_subagent_has_a_model_of_its_own(server: ModelServer, make_engine: MakeEngine) -> None:
    agents = {"helper": SubagentConfig("helps", "You help.", model="local/small")}
    server.reply(Stream((Part("tool", ("c1", "Task", {"agent": "helper", "prompt": "do it"})),)), FINE)
    result = await _turn(make_engine("chat"), agents=agents)
    assert result.text == "Well"
    assert [request["model"] for request in server.requests] == ["some-model", "small", "some-model"]
    unknown = {"helper": SubagentConfig("helps", "You help.", model="nowhere")}
    result = await _turn(make_engine("chat"), agents=unknown)
    assert result.error is not None
    assert "'nowhere'" in result.error.message
