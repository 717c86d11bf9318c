"""Workers add the models of their machine's programs to the configurations of tenants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nova_workers.base.config import Settings
from nova_workers.bootstrap.model_choice import build_configs
from nova_workers.bootstrap.model_discovery import build_discovery
from nova_workers.bootstrap.worker import build_worker
from nova_workers.contracts.http.orchestration_config import OrchestrationConfigPut
from nova_workers.ledger.database import Database
from tests.integration.api.manual_worker import make_tenant
from tests.requirements import proves
from tests.support.harness.manual_clock import ManualClock

MINE = "# Mine.\nmodels: {gpt-8-sol: opus}\n"


def list_models(cache: Path, *slugs: str) -> None:
    """Write the list of a Codex."""
    cache.write_text(json.dumps({"models": [{"slug": slug, "visibility": "list"} for slug in slugs]}))


@pytest.fixture
def codex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The list of a Codex that is the only program of this machine."""
    cache = tmp_path / "models_cache.json"
    list_models(cache, "gpt-7-sol")
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return cache


@proves("orchestration.discovery")
async def test_configured_tenants_get_new_models_once_a_day(
    database: Database, settings: Settings, codex: Path
) -> None:
    tenant, unconfigured = await make_tenant(database), await make_tenant(database)
    configs, clock = build_configs(database, settings), ManualClock()
    discovery = build_discovery(database, settings, clock)
    assert await discovery.tick() == 0, "no tenant has a configuration"
    await configs.put(tenant.id, OrchestrationConfigPut(text="", models_text=MINE), actor="person")
    assert await discovery.tick() == 1
    found = await configs.get(tenant.id)
    assert (found.version, found.created_by) == (2, "discovery")
    assert found.models_text.startswith("# Mine.")
    config, _ = await configs.load(tenant.id)
    assert config.model("gpt-7-sol").provider == "codex"
    assert config.model("gpt-8-sol").provider == "claude"
    assert (await configs.get(unconfigured.id)).version == 0
    list_models(codex, "gpt-8-sol", "gpt-9")
    assert await discovery.tick() == 0, "the day has not passed"
    clock.advance(86_401)
    assert await discovery.tick() == 1
    config, version = await configs.load(tenant.id)
    assert (config.model("gpt-9").model_id, version) == ("gpt-9", 3)
    assert config.model("gpt-8-sol").provider == "claude", "what a person set stays"
    clock.advance(86_401)
    assert await discovery.tick() == 0, "nothing is new"


@pytest.mark.usefixtures("codex")
async def test_discovery_can_be_switched_off(database: Database, settings: Settings) -> None:
    tenant = await make_tenant(database)
    off = settings.model_copy(
        update={"orchestration": settings.orchestration.model_copy(update={"model_discovery": False})}
    )
    await build_configs(database, off).put(tenant.id, OrchestrationConfigPut(text=""), actor="person")
    assert await build_discovery(database, off, ManualClock()).tick() == 0


async def test_the_daily_tick_of_a_worker_ranks_and_discovers(
    database: Database, settings: Settings, codex: Path
) -> None:
    list_models(codex, "gpt-7-sol")
    tenant = await make_tenant(database)
    await build_configs(database, settings).put(tenant.id, OrchestrationConfigPut(text="engine: {}"), actor="person")
    worker = build_worker(settings)
    try:
        await worker.learn_about_models()
        await worker.learn_about_models()
    finally:
        await worker.aclose()
    stored = await build_configs(database, settings).get(tenant.id)
    assert (stored.version, stored.created_by, stored.text) == (2, "discovery", "engine: {}")
