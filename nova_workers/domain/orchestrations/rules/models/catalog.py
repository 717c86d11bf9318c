"""The models of one tenant now: its configuration, what the fleet can reach, what was learned; and the choice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from nova_workers.base.vocabulary import TASK_CATEGORIES, AgentRole, ReasoningEffort, TaskCategory
from nova_workers.contracts.http.orchestration_config import OrchestrationModelView, RankedScoreView
from nova_workers.domain.orchestrations.rules.config.service import OrchestrationConfigs
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.availability import AvailabilitySource, unavailable_providers
from nova_workers.domain.orchestrations.rules.models.capability import ModelCapability, classify
from nova_workers.domain.orchestrations.rules.models.choice import ChosenModel, ModelSelector, Recommendation
from nova_workers.domain.orchestrations.rules.models.rankings import Rankings
from nova_workers.domain.orchestrations.rules.models.registry import ModelRegistry
from nova_workers.domain.orchestrations.sql.judgements import get_scores
from nova_workers.domain.orchestrations.sql.rankings import list_rankings
from nova_workers.ledger.database import Database

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
        """Return the selector of models for the agents of a tenant's orchestration."""
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


class RankedModels:
    """Implements `nova_workers.domain.orchestrations.rules.models.choice.ModelChooser`."""

    def __init__(self, catalog: ModelCatalog) -> None:
        self._catalog = catalog

    async def choose(
        self,
        tenant_id: str,
        config: OrchestrationConfig,
        *,
        role: AgentRole,
        task: str,
        model: str | None,
        complexity: str | None,
    ) -> ChosenModel:
        """Return the model for a task: the one asked for, the configuration's, or a chosen one.

        Without any of these, where nothing restricts the choice and no complexity is given, it is the fleet's default.

        Raises:
            ModelNotAvailableError: The model is unknown, not permitted, or does not fit the complexity.
            ProviderNotAvailableError: The fleet does not have its provider, and no other model may take its place.
            InvalidInput: There is no such complexity.
        """
        category = classify(task).category
        selector = await self._catalog.selector(tenant_id, config)
        is_master = role == "MASTER"
        # Work of a given complexity is what the choice is for: the default of all agents would prevent it.
        default = config.defaults.master_model if is_master else None
        name = model or default or (config.defaults.model if complexity is None else None)
        if name is None:
            if complexity is None and (is_master or not selector.peer_models):
                return ChosenModel(None, category=category)
            return _chosen(selector.choose(category, complexity), config, category)
        named = config.model(name)
        found = selector.for_master(named.model_id) if is_master else selector.check(named.model_id, complexity)
        # A model that takes the place of another is not asked for the effort that was meant for that one.
        effort = named.reasoning_effort if found.model_id == named.model_id else None
        return _chosen(found, config, category, effort)

    async def recommend(
        self, tenant_id: str, config: OrchestrationConfig, task_description: str, complexity: str | None = None
    ) -> Recommendation:
        """Return the model for a described piece of work, and why. For the tool `recommend_model`.

        Raises:
            InvalidInput: There is no such complexity.
            ModelNotAvailableError: No model that is permitted and can be had suffices.
        """
        selector: ModelSelector = await self._catalog.selector(tenant_id, config)
        return selector.recommend(task_description, complexity)

    async def peers(self, tenant_id: str, config: OrchestrationConfig) -> dict[str, str]:
        """Return the models that may be asked for a second opinion. See `ModelChooser.peers`."""
        selector = await self._catalog.selector(tenant_id, config)
        names = {model.model_id: name for name, model in reversed(config.models.items())}
        best = {provider: selector.best_of(provider) for provider in sorted(config.providers)}
        found = {provider: names[model.model_id] for provider, model in best.items() if model is not None}
        defaults = config.defaults
        configured = (*((defaults.peer_model,) if defaults.peer_model else ()), *defaults.peer_models)
        return found | {name: name for name in configured}


def _chosen(
    model: ModelCapability,
    config: OrchestrationConfig,
    category: TaskCategory,
    effort: ReasoningEffort | None = None,
) -> ChosenModel:
    provider = config.providers[model.provider]
    return ChosenModel(provider.model_name(model.model_id), provider.engine, category, effort)
