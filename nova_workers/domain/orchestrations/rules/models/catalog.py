"""The models of one tenant now: its configuration, what the fleet can reach, and what was learned."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from nova_workers.base.vocabulary import TASK_CATEGORIES
from nova_workers.contracts.http.orchestration_config import OrchestrationModelView, RankedScoreView
from nova_workers.domain.orchestrations.rules.config.service import OrchestrationConfigs
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.availability import AvailabilitySource, unavailable_providers
from nova_workers.domain.orchestrations.rules.models.capability import ModelCapability
from nova_workers.domain.orchestrations.rules.models.choice import ModelSelector
from nova_workers.domain.orchestrations.rules.models.ranking import Rankings
from nova_workers.domain.orchestrations.rules.models.registry import ModelRegistry
from nova_workers.domain.orchestrations.sql.judgements import get_scores
from nova_workers.domain.orchestrations.sql.rankings import list_rankings
from nova_workers.ledger.database import Database

__all__ = ["ModelCatalog"]

_JUDGEMENT_DAYS: Final = 7
"""How long a judgement counts: a judge that gives no valid answer for a week is no judge."""


@dataclass(frozen=True)
class ModelCatalog:
    """Reads what a choice of models depends on.

    Attributes:
        database: Of the ledger.
        availability: Which providers the fleet has.
    """

    database: Database
    availability: AvailabilitySource

    async def selector(self, tenant_id: str, config: OrchestrationConfig) -> ModelSelector:
        """Return what chooses models for the agents of a tenant's orchestration."""
        return await self._selector(config, await self._rankings(tenant_id, config))

    async def describe(self, tenant_id: str, configs: OrchestrationConfigs) -> list[OrchestrationModelView]:
        """Return every model with its scores, by provider, tier and id.

        Raises:
            InvalidInput: The stored configuration names what this version of the fleet does not have any more.
        """
        config, _ = await configs.load(tenant_id)
        rankings = await self._rankings(tenant_id, config)
        selector = await self._selector(config, rankings)
        names: dict[str, list[str]] = {}
        for name, model in config.models.items():
            if name != model.model_id:
                names.setdefault(model.model_id, []).append(name)
        return [_view(model, selector, rankings, sorted(names.get(model.model_id, ()))) for model in selector.registry]

    async def _selector(self, config: OrchestrationConfig, rankings: Rankings) -> ModelSelector:
        # The first use in a process reads the price list: up to 0.4 s.
        registry = await asyncio.to_thread(ModelRegistry.of, config)
        availability = await self.availability.current()
        unavailable = unavailable_providers(config.providers, availability)
        return ModelSelector(registry, unavailable, config.peers(), rankings.score, availability.checked_at)

    async def _rankings(self, tenant_id: str, config: OrchestrationConfig) -> Rankings:
        async with self.database.connection() as connection:
            learned = await list_rankings(connection, tenant_id)
            if config.defaults.judge_model is None:
                return Rankings(learned)
            return Rankings(learned, await get_scores(connection, tenant_id, days=_JUDGEMENT_DAYS))


def _view(
    model: ModelCapability, selector: ModelSelector, rankings: Rankings, names: list[str]
) -> OrchestrationModelView:
    scores: list[RankedScoreView] = []
    for category in TASK_CATEGORIES:
        learned = rankings.get(model, category)
        score, source = rankings.score_of(model, category)
        scores.append(
            RankedScoreView(
                category=category,
                score=round(score, 4),
                source=source,
                affinity=model.affinity(category),
                judgement=rankings.judged(model, category),
                samples=0 if learned is None else learned.samples,
                success_rate=None if learned is None else learned.success_rate,
                mean_cost_usd=None if learned is None else learned.mean_cost_usd,
                mean_duration_ms=None if learned is None else learned.mean_duration_ms,
            )
        )
    return OrchestrationModelView(
        model_id=model.model_id,
        provider=model.provider,
        names=names,
        tier=model.tier,
        cost_factor=model.cost_factor,
        speed_factor=model.speed_factor,
        max_context_window=model.max_context_window,
        source=model.source,
        enabled=model.enabled,
        permitted=not selector.peer_models or model.model_id in selector.peer_models,
        unavailable=selector.unavailable.get(model.provider),
        checked_at=selector.checked_at,
        scores=scores,
    )
