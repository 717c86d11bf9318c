"""What the operator sets arrives at the engine of a worker."""

import json
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.bootstrap.worker import build_worker
from nova_workers.contracts.engine import EngineOptions, EngineResult
from tests.support.servers.model_server import ModelServer, Part, Status, Stream

FINE = Stream((Part("text", ["Well"]),), usage={"input_tokens": 1_000_000, "output_tokens": 100_000})


def _with(settings: Settings, monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    """Return the settings with those of the environment for the engine."""
    for name, value in variables.items():
        monkeypatch.setenv(f"NOVA_OPENAI__{name}", value)
    return Settings.model_validate({**settings.model_dump(), "openai": Settings().openai.model_dump()})


async def _run(settings: Settings, turns: int = 1, **options: Any) -> list[EngineResult]:
    worker = build_worker(settings)
    try:
        given = EngineOptions(model="sonnet", **options)
        return [await worker.engines["openai"].run("hi", given, "sandbox") for _ in range(turns)]
    finally:
        await worker.aclose()


async def test_a_provider_of_the_environment_is_used_with_its_key_and_price(
    settings: Settings, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.reply(FINE)
    provider = {
        "base_url": f"{server.url}/v1",
        "prices": {"*": {"input": 2.0, "output": 10.0}},
        "headers": {"X-Team": "agents"},
    }
    settings = _with(
        settings,
        monkeypatch,
        MODEL="mine/some-model",
        PROVIDERS=json.dumps({"mine": provider}),
        PROVIDERS__MINE__API_KEY="key-of-mine",
    )
    (result,) = await _run(settings, cost_budget_usd=100.0)
    assert (result.text, result.provider, result.usage.tokens.cost_usd) == ("Well", "openai", 3.0)
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["authorization"] == "Bearer key-of-mine"
    assert server.headers[0]["x-team"] == "agents"
    # Neither value is in what a log shows of the settings.
    assert "key-of-mine" not in repr(settings)
    assert "agents" not in repr(settings.openai)


async def test_openai_itself_speaks_the_responses_api_with_the_key_of_the_environment(
    settings: Settings, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.reply(FINE)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    provider = {"openai": {"api": "responses"}}
    settings = _with(settings, monkeypatch, MODEL="gpt-5", PROVIDERS=json.dumps(provider))
    (result,) = await _run(settings)
    assert result.text == "Well"
    assert (server.paths, server.requests[0]["model"]) == (["/v1/responses"], "gpt-5")
    assert server.headers[0]["authorization"] == "Bearer key-of-openai"


async def test_a_refused_key_rests_in_redis_for_all_workers(
    settings: Settings, server: ModelServer, monkeypatch: pytest.MonkeyPatch, redis: Redis
) -> None:
    server.reply_when(lambda headers, _: headers["authorization"] == "Bearer key-main", Status(401))
    server.reply(FINE)
    provider = {"base_url": f"{server.url}/v1", "api_keys": {"main": "key-main", "spare": "key-spare"}}
    settings = _with(settings, monkeypatch, MODEL="mine/m", PROVIDERS=json.dumps({"mine": provider}))
    await _run(settings)
    await _run(settings)
    assert [headers["authorization"][-5:] for headers in server.headers] == ["-main", "spare", "spare"]
    names = [name.decode() async for name in redis.scan_iter("nova:model:openai:*")]
    assert [name.split(":")[4:6] for name in names] == [["rests", "mine.main"]]
    assert "key-main" not in names[0]


def test_a_worker_without_a_model_for_it_has_no_such_engine(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-something-else")
    assert "openai" not in build_worker(settings).engines
    # A compose file gives an empty text for what is not set.
    assert "openai" not in build_worker(_with(settings, monkeypatch, MODEL="")).engines
    settings = _with(settings, monkeypatch, PROVIDERS='{"mine": {"base_url": "http://127.0.0.1:1/v1"}}')
    with pytest.raises(ConfigurationError, match="NOVA_OPENAI__MODEL is not set"):
        build_worker(settings)


@pytest.mark.parametrize(
    ("provider", "problem"),
    [
        ({}, "'mine' in NOVA_OPENAI__PROVIDERS has no base_url"),
        ({"base_url": "ftp://x"}, "base_url"),
        ({"base_url": "http://x/v1", "key": "k"}, "key"),
    ],
)
def test_a_provider_that_cannot_be_used_is_refused_at_the_start(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, provider: dict[str, Any], problem: str
) -> None:
    with pytest.raises((ConfigurationError, ValueError), match=problem):
        build_worker(_with(settings, monkeypatch, MODEL="mine/m", PROVIDERS=json.dumps({"mine": provider})))


async def test_what_aliases_fallbacks_and_limits_mean_for_anthropics_models_does_not_count(
    settings: Settings, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.reply(FINE)
    model = {
        "aliases": {"sonnet": "claude-sonnet-4-5", "fast": "mine/small"},
        "fallbacks": ["claude-haiku-4-5"],
        "rate_limits": {"sonnet": {"requests_per_minute": 1}, "mine/small": {"requests_per_minute": 60}},
    }
    settings = Settings.model_validate({**settings.model_dump(), "model": model})
    provider = {"base_url": f"{server.url}/v1"}
    settings = _with(settings, monkeypatch, MODEL="mine/large", PROVIDERS=json.dumps({"mine": provider}))
    await _run(settings, turns=2)
    worker = build_worker(settings)
    for name in ("fast", "haiku"):
        result = await worker.engines["openai"].run("hi", EngineOptions(model=name), "sandbox")
        assert result.error is None
    await worker.aclose()
    assert [request["model"] for request in server.requests] == ["large", "large", "small", "large"]


def test_a_default_engine_that_the_worker_lacks_is_refused_at_the_start(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match="NOVA_DEFAULT_ENGINE is 'openai', but this worker has only"):
        build_worker(settings.model_copy(update={"default_engine": "openai"}))
