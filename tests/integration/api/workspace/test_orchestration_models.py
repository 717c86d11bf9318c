"""The models of orchestrations over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from redis.asyncio import Redis

from nova_workers.base.errors import NotFound
from nova_workers.base.keys import provider_reports
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.orchestration_config import OrchestrationConfigPut
from nova_workers.domain.orchestrations.rules.models.availability import ProviderReport
from nova_workers.domain.orchestrations.sql.judgements import Answer, begin_judgement, end_judgement
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant

_INSERT = """
INSERT INTO model_rankings (tenant_id, category, model, samples, success_rate, mean_cost_usd, mean_duration_ms, score)
VALUES (:tenant_id, 'coding', 'claude-opus-5-5', 10, 0.5, 0.02, 1500, 0.41)
"""


async def test_models_have_scores_that_are_learned_or_affinities(
    api: Api, database: Database, other_tenant: Tenant
) -> None:
    await database.execute(_INSERT, tenant_id=api.tenant.id)
    async with NovaClient(api.url, api.tenant.key) as nova:
        text = "models: {best: opus}\ndefaults: {peer_models: [best]}\nproviders: {codex: {enabled: false}}"
        await nova.orchestration_config.put(OrchestrationConfigPut(text=text))
        models = {model.model_id: model for model in (await nova.orchestration_models.list()).items}
    opus, sol = models["claude-opus-5-5"], models["gpt-6-sol"]
    assert (opus.names, opus.permitted, opus.tier) == (["best", "opus"], True, "frontier")
    assert (sol.permitted, sol.unavailable) == (False, "the configuration disables it")
    assert opus.checked_at is None, "No worker tried a provider."
    scores = {each.category: each for each in opus.scores}
    assert scores["coding"].score == round((0.41 + scores["coding"].affinity) / 2, 4)
    assert (scores["coding"].samples, scores["coding"].mean_cost_usd) == (10, 0.02)
    assert (scores["planning"].score, scores["planning"].samples) == (scores["planning"].affinity, 0)
    async with NovaClient(api.url, other_tenant.key) as other:
        unlearned = {model.model_id: model for model in (await other.orchestration_models.list()).items}
    assert all(each.samples == 0 for each in unlearned["claude-opus-5-5"].scores)


async def test_a_model_that_workers_do_not_reach_has_the_reason_and_its_time(api: Api, redis: Redis) -> None:
    checked_at = datetime.now(UTC)
    report = ProviderReport(checked_at=checked_at, engines={"anthropic": {"": "it refuses the key (401)"}})
    await redis.set(provider_reports(), report.model_dump_json(), ex=60)
    async with NovaClient(api.url, api.tenant.key) as nova:
        models = {model.model_id: model for model in (await nova.orchestration_models.list()).items}
    opus, sol = models["claude-opus-5-5"], models["gpt-6-sol"]
    assert (opus.unavailable, opus.checked_at) == ("it refuses the key (401)", checked_at)
    assert sol.unavailable == "the workers have no engine 'openai'"


async def test_the_last_judgement_is_its_tenants_own(api: Api, database: Database, other_tenant: Tenant) -> None:
    async with NovaClient(api.url, api.tenant.key) as nova, NovaClient(api.url, other_tenant.key) as other:
        with pytest.raises(NotFound, match="judge_model"):
            await nova.orchestration_models.judgement()
        async with database.transaction() as connection:
            asked_at = await begin_judgement(connection, api.tenant.id, "claude-opus-5-5", fresh_s=60)
            assert asked_at is not None
            await end_judgement(connection, api.tenant.id, asked_at, Answer(error="It was cut off."))
        judgement = await nova.orchestration_models.judgement()
        assert (judgement.judge, judgement.status, judgement.error) == ("claude-opus-5-5", "failed", "It was cut off.")
        assert judgement.asked_at == asked_at
        with pytest.raises(NotFound):
            await other.orchestration_models.judgement()
