"""The choice of models behind the seam of spawning: registry, availability, rankings."""

from __future__ import annotations

from nova_workers.base.vocabulary import AgentRole, ReasoningEffort, TaskCategory
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.capability import ModelCapability
from nova_workers.domain.orchestrations.rules.models.catalog import ModelCatalog
from nova_workers.domain.orchestrations.rules.models.choice import ModelSelector, Recommendation
from nova_workers.domain.orchestrations.rules.models.choosing import ChosenModel
from nova_workers.domain.orchestrations.rules.models.classifying import classify

__all__ = ["RankedModels"]


class RankedModels:
    """Implements `nova_workers.domain.orchestrations.rules.models.choosing.ModelChooser`."""

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
