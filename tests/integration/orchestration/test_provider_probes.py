"""Models are chosen among those of providers that workers reach."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from nova_workers.base.config import Settings
from nova_workers.base.errors import ProviderNotAvailableError
from nova_workers.base.keys import PROVIDERS_TTL_S, provider_reports
from nova_workers.bootstrap.worker import build_worker
from nova_workers.contracts.engine import Engine
from nova_workers.domain.orchestrations.rules.config.parsing import parse_config
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig, ProviderConfig
from nova_workers.domain.orchestrations.rules.models.availability import (
    FleetAvailability,
    ProbedAvailability,
    ProviderProbes,
    ProviderReport,
    ReportedAvailability,
)
from nova_workers.domain.orchestrations.rules.models.catalog import ModelCatalog, RankedModels
from nova_workers.domain.orchestrations.rules.models.registry import known_models
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.scripted import ScriptedEngine
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.manual_clock import ManualClock
from tests.support.servers.web_server import reply, web_server

CONFIG = """
providers: {local: {engine: scripted}}
model_registry:
  local-frontier: {provider: local, tier: frontier}
"""
BY_SETTINGS = FleetAvailability({"anthropic", "scripted"})
SECRET = "sk-secret-of-the-operator"


def probes(redis: Redis, settings: Settings, engines: Mapping[str, Engine]) -> ProviderProbes:
    return ProviderProbes(redis, engines, settings.orchestration, ManualClock())


async def master(database: Database, redis: Redis, config: OrchestrationConfig) -> str | None:
    models = RankedModels(ModelCatalog(database, ProbedAvailability(redis, BY_SETTINGS)))
    chosen = await models.choose("ten_none", config, role="MASTER", task="x", model="opus", complexity=None)
    return chosen.model


@proves("orchestration.probes")
async def test_a_provider_that_workers_do_not_reach_gives_way_to_one_of_the_same_tier(
    database: Database, redis: Redis, settings: Settings
) -> None:
    config = parse_config(CONFIG, known=known_models())
    opus = config.model("opus").model_id
    assert await master(database, redis, config) == opus, "Without a report the settings decide."
    async with web_server() as server:
        server.page("/v1/models?limit=1", reply(b"{}", status="401 Unauthorized"))
        claude = AnthropicEngine(api_key=SECRET, base_url=f"http://127.0.0.1:{server.port}")
        tried = probes(redis, settings, {"anthropic": claude, "scripted": ScriptedEngine(environment="development")})
        with capture_logs() as logs:
            await tried.tick()
            await tried.tick()
        assert [line["unavailable"] for line in logs] == [{"anthropic": "it refuses the key (401)"}], "Once a change."
        assert SECRET not in str(logs) + str(await redis.get(provider_reports()))
        assert await master(database, redis, config) == "local-frontier"
        models = RankedModels(ModelCatalog(database, ProbedAvailability(redis, BY_SETTINGS)))
        with pytest.raises(ProviderNotAvailableError, match=r"refuses the key \(401\)"):
            await models.choose("ten_none", config, role="WORKER", task="x", model="opus", complexity=None)
        server.page("/v1/models?limit=1", reply(b"{}"))
        await tried.tick()
        assert await master(database, redis, config) == opus, "The key is accepted again."
        await claude.close()


async def test_a_report_expires(redis: Redis, settings: Settings) -> None:
    await probes(redis, settings, {}).tick()
    assert 0 < await redis.ttl(provider_reports()) <= PROVIDERS_TTL_S
    source = ProbedAvailability(redis, BY_SETTINGS)
    assert (await source.current()).missing(ProviderConfig(engine="anthropic")) == (
        "the workers have no engine 'anthropic'"
    )
    await redis.delete(provider_reports())
    assert await source.current() is BY_SETTINGS
    await redis.set(provider_reports(), "{}", ex=60)
    assert await source.current() is BY_SETTINGS, "A report of another version is none."
    unreachable = ProbedAvailability(Redis(port=9), BY_SETTINGS)
    assert await unreachable.current() is BY_SETTINGS
    await unreachable.redis.aclose()


async def test_trying_can_be_switched_off(redis: Redis, settings: Settings) -> None:
    off = settings.orchestration.model_copy(update={"probe_providers": False})
    assert await ProviderProbes(redis, {}, off, ManualClock()).tick() is None
    assert await redis.get(provider_reports()) is None


def test_a_report_decides_by_engine_and_profile() -> None:
    openai = {"openai": "it has no key", "ollama": None}
    report = ProviderReport(checked_at=datetime.now(UTC), engines={"openai": openai, "anthropic": {"": "down"}})
    had = ReportedAvailability(report)
    assert had.missing(ProviderConfig(profile="ollama")) is None
    assert had.missing(ProviderConfig(profile="openai")) == "it has no key"
    assert had.missing(ProviderConfig(profile="vllm")) is not None
    assert had.missing(ProviderConfig()) is None, "Some provider of the engine answers."
    assert had.missing(ProviderConfig(engine="anthropic")) == "down"
    assert had.missing(ProviderConfig(engine="anthropic", enabled=False)) == "the configuration disables it"


async def test_a_worker_tries_the_providers_of_its_engines(
    redis: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    async with web_server() as ollama:
        model = settings.model.model_copy(update={"api_key": None, "profiles": (), "base_url": None})
        with_ollama = Settings.model_validate(
            {
                **settings.model_dump(exclude={"model", "openai"}),
                "model": model,
                "openai": {
                    "model": "ollama/qwen3",
                    "providers": {"ollama": {"base_url": f"http://127.0.0.1:{ollama.port}/v1"}},
                },
            }
        )
        worker = build_worker(with_ollama)
        try:
            report = await worker.provider_probes.tick()
        finally:
            await worker.aclose()
        assert report is not None
        assert report.engines["anthropic"] == report.engines["claude_agent"] == {"": "it has no key"}
        assert report.engines["openai"]["ollama"] is None, "It has no list of models, but answers."
        assert report.engines["scripted"] == {"": None}
