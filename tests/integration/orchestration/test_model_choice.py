"""Models are chosen for agents, and ranked by what agents did with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nova_workers.base.errors import ModelNotAvailableError, ProviderNotAvailableError
from nova_workers.domain.orchestrations.rules.config.parsing import parse_config
from nova_workers.domain.orchestrations.rules.models.availability import FleetAvailability
from nova_workers.domain.orchestrations.rules.models.catalog import ModelCatalog, RankedModels
from nova_workers.domain.orchestrations.rules.models.choice import ChosenModel
from nova_workers.domain.orchestrations.rules.models.registry import known_models
from nova_workers.domain.orchestrations.sql.rankings import list_rankings, refresh_rankings
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.trees import Forest, complete

DAY_S = 86_400.0


async def refresh(database: Database, fresh_s: float = DAY_S) -> int:
    async with database.transaction() as connection:
        return await refresh_rankings(connection, fresh_s=fresh_s, days=90)


async def ended_agents(
    forest: Forest, model: str, runs: int, *, failed: int = 0, cost_usd: float | None = 0.01
) -> None:
    """Let agents end, then record them as agents that coded with a model."""
    for number in range(runs):
        started = await forest.run(complete("Done."))
        values: dict[str, Any] = {"run_id": started.run_id, "model": model, "cost_usd": cost_usd}
        await forest.harness.database.execute(
            "UPDATE orchestration_agents SET category = 'coding' WHERE run_id = :run_id", run_id=started.run_id
        )
        await forest.harness.database.execute(
            "UPDATE usage SET model = :model, cost_usd = :cost_usd::numeric, duration_ms = 1000 WHERE run_id = :run_id",
            **values,
        )
        if number < failed:
            await forest.harness.database.execute(
                "UPDATE runs SET status = 'failed', error_kind = 'model_error' WHERE id = :run_id",
                run_id=started.run_id,
            )


async def rankings(forest: Forest) -> dict[str, Any]:
    async with forest.harness.database.connection() as connection:
        return {each.model: each for each in await list_rankings(connection, forest.tenant_id)}


@proves("orchestration.rankings")
async def test_rankings_are_computed_from_what_ended_agents_did(forest: Forest) -> None:
    database = forest.harness.database
    await ended_agents(forest, "good", 3, cost_usd=0.01)
    await ended_agents(forest, "bad", 4, failed=2, cost_usd=0.02)
    await ended_agents(forest, "free", 1, cost_usd=0)
    await ended_agents(forest, "unpriced", 1, cost_usd=None)
    assert await refresh(database) == 4
    found = await rankings(forest)
    assert {name: (each.category, each.samples, each.success_rate) for name, each in found.items()} == {
        "good": ("coding", 3, 1.0),
        "bad": ("coding", 4, 0.5),
        "free": ("coding", 1, 1.0),
        "unpriced": ("coding", 1, 1.0),
    }
    assert found["free"].score == pytest.approx(1.0)
    assert found["unpriced"].score == pytest.approx(0.95)
    assert found["good"].score == pytest.approx(0.9), "The free model is infinitely cheaper."
    assert found["bad"].score == pytest.approx(0.5)


async def test_rankings_are_computed_once_a_day(forest: Forest) -> None:
    database = forest.harness.database
    assert await refresh(database) == 0
    await ended_agents(forest, "good", 1)
    assert await refresh(database) == 1
    await ended_agents(forest, "good", 1)
    assert await refresh(database) == 0, "They are fresh."
    assert (await rankings(forest))["good"].samples == 1
    assert await refresh(database, fresh_s=0) == 1
    assert (await rankings(forest))["good"].samples == 2
    await asyncio.gather(*(refresh(database, fresh_s=0) for _ in range(4)))
    assert (await rankings(forest))["good"].samples == 2


async def test_a_ranking_without_recent_runs_is_removed(forest: Forest) -> None:
    database = forest.harness.database
    await ended_agents(forest, "old", 1)
    await refresh(database)
    await database.execute("UPDATE orchestration_agents SET ended_at = now() - interval '91 days'")
    assert await refresh(database, fresh_s=0) == 0
    assert await rankings(forest) == {}


async def test_failures_of_the_fleet_do_not_count(forest: Forest) -> None:
    database = forest.harness.database
    await ended_agents(forest, "good", 2, failed=1)
    await database.execute("UPDATE runs SET error_kind = 'worker_lost' WHERE status = 'failed'")
    await refresh(database)
    assert (await rankings(forest))["good"].success_rate == 1


CONFIG = """
providers: {local: {engine: openai, profile: ollama}}
models:
  small: {provider: local, model_id: qwen3-8b}
  deep: {model_id: opus, reasoning_effort: high}
defaults: {master_model: opus, peer_models: [small, sonnet, opus]}
"""


async def test_agents_get_models_that_fit_and_that_the_fleet_has(database: Database) -> None:
    config = parse_config(CONFIG, known=known_models())
    models = RankedModels(ModelCatalog(database, FleetAvailability({"anthropic", "openai"}, {"openai": {"ollama"}})))

    async def choose(model: str | None = None, complexity: str | None = None, *, master: bool = False) -> ChosenModel:
        return await models.choose(
            "ten_none",
            config,
            role="MASTER" if master else "WORKER",
            task="Fix the bug in this function.",
            model=model,
            complexity=complexity,
        )

    opus = config.model("opus").model_id
    assert await choose(master=True) == ChosenModel(opus, "anthropic", "coding")
    assert await choose("small") == ChosenModel("ollama/qwen3-8b", "openai", "coding")
    assert await choose("deep") == ChosenModel(opus, "anthropic", "coding", "high")
    assert (await choose(complexity="simple")).model == "ollama/qwen3-8b"
    assert (await choose(complexity="expert")).model == opus
    assert (await choose()).model == config.model("sonnet").model_id, "coding is complex"
    with pytest.raises(ModelNotAvailableError, match="takes strong or above"):
        await choose("small", "complex")
    with pytest.raises(ModelNotAvailableError, match="may not have"):
        await choose("haiku")
    with pytest.raises(ModelNotAvailableError, match="There is no model or alias"):
        await choose("gpt-1")
    found = await models.recommend("ten_none", config, "Rename a file.")
    assert found.model.model_id == "qwen3-8b"


async def test_a_model_of_a_provider_that_the_fleet_lacks_is_refused(database: Database) -> None:
    config = parse_config("", known=known_models())
    models = RankedModels(ModelCatalog(database, FleetAvailability({"openai"}, {"openai": {"openai"}})))
    worker = await models.choose("ten_none", config, role="WORKER", task="x", model=None, complexity=None)
    assert worker.model is None, "The fleet's default."
    with pytest.raises(ProviderNotAvailableError, match="anthropic"):
        await models.choose("ten_none", config, role="WORKER", task="x", model="opus", complexity=None)
    master = await models.choose("ten_none", config, role="MASTER", task="x", model="opus", complexity=None)
    assert master.engine == "openai"
    assert str(master.model).startswith("openai/gpt-")
