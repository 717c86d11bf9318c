"""Chooses a model for a piece of work. Deterministic: the same registry, rankings and request give the same model."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from nova_workers.base.errors import ModelNotAvailableError, ProviderNotAvailableError
from nova_workers.base.vocabulary import AgentRole, Complexity, ModelTier, ReasoningEffort, TaskCategory
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.capability import (
    ModelCapability,
    classify,
    required_tier,
    tier_rank,
    usual_complexity,
    version_of,
)
from nova_workers.domain.orchestrations.rules.models.registry import ModelRegistry

_ALTERNATIVES: Final = 3
_MASTER_CATEGORY: Final[TaskCategory] = "agentic"
_PEER_CATEGORY: Final[TaskCategory] = "complex-reasoning"

Score = Callable[[ModelCapability, TaskCategory], float]
"""How good a model is for a kind of work, from 0 to 1."""


def _static(model: ModelCapability, category: TaskCategory) -> float:
    return model.affinity(category)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A choice, with what led to it.

    Attributes:
        category: The kind of work.
        tier: The lowest tier that suffices.
        words: Words of the description that say which kind it is.
        alternatives: Models that would do as well, the next best first.
    """

    model: ModelCapability
    category: TaskCategory
    tier: ModelTier
    score: float
    words: tuple[str, ...] = ()
    alternatives: tuple[ModelCapability, ...] = ()


@dataclass(frozen=True)
class ModelSelector:
    """Chooses among the models that are permitted and can be had.

    Attributes:
        registry: Every model.
        unavailable: Providers that cannot be had, and why.
        peer_models: Ids of the models that agents may have; empty permits all.
        score: What ranks models of one tier; without experience, their affinities.
        checked_at: When a worker tried the providers; None if settings alone say which can be had.
    """

    registry: ModelRegistry
    unavailable: Mapping[str, str] = field(default_factory=dict[str, str])
    peer_models: Collection[str] = frozenset()
    score: Score = _static
    checked_at: datetime | None = None

    def choose(self, category: TaskCategory, complexity: str | None = None) -> ModelCapability:
        """Return the best model for a kind of work, of the lowest tier that suffices and has a model.

        Within a tier: the highest score, then the lowest cost, then the highest speed, then the newest version.

        Raises:
            InvalidInput: There is no such complexity.
            ModelNotAvailableError: No model that is permitted and can be had suffices.
        """
        tier = required_tier(complexity or usual_complexity(category))
        return self._ranked(category, tier)[0]

    def recommend(self, task_description: str, complexity: str | None = None) -> Recommendation:
        """Return the model for a described piece of work, and why.

        Args:
            task_description: In the words of the agent that asks; they say which kind of work it is.
            complexity: ``simple``, ``medium``, ``complex``, ``expert``, or a tier; None takes what is usual for it.

        Raises:
            InvalidInput, ModelNotAvailableError: As `choose`.
        """
        kind = classify(task_description)
        tier = required_tier(complexity or usual_complexity(kind.category))
        best, *others = self._ranked(kind.category, tier)
        return Recommendation(
            model=best,
            category=kind.category,
            tier=tier,
            score=round(self.score(best, kind.category), 4),
            words=kind.words,
            alternatives=tuple(others[:_ALTERNATIVES]),
        )

    def check(self, model_id: str, complexity: str | None = None) -> ModelCapability:
        """Return a model that a request names, if agents may have it and it suffices.

        Raises:
            InvalidInput: There is no such complexity.
            ModelNotAvailableError: It is unknown, not among `peer_models`, disabled, or too weak for the complexity.
            ProviderNotAvailableError: Its provider cannot be had.
        """
        model = self._known(model_id)
        if self.peer_models and model_id not in self.peer_models:
            raise ModelNotAvailableError(
                f"Agents may not have the model {model_id!r}; they may have {', '.join(sorted(self.peer_models))}.",
                model=model_id,
            )
        if not model.enabled:
            raise ModelNotAvailableError(f"The configuration disables the model {model_id!r}.", model=model_id)
        self._require_provider(model)
        if complexity is not None:
            tier = required_tier(complexity)
            if tier_rank(model.tier) < tier_rank(tier):
                raise ModelNotAvailableError(
                    f"The model {model_id!r} is of the tier {model.tier}; work that is {complexity} takes {tier} or "
                    "above. Name another model, or none to have one chosen.",
                    model=model_id,
                    tier=model.tier,
                    required=tier,
                )
        return model

    def for_master(self, model_id: str) -> ModelCapability:
        """Return a model for a master: the one named, or the best of its tier if its provider cannot be had.

        `peer_models` does not bind a master.

        Raises:
            ModelNotAvailableError: It is unknown, or no other model of its tier can be had.
        """
        wanted = self._known(model_id)
        if wanted.enabled and wanted.provider not in self.unavailable:
            return wanted
        of_tier = [model for model in self._available(self.registry) if model.tier == wanted.tier]
        if not of_tier:
            why = self.unavailable.get(wanted.provider, "the configuration disables the model")
            raise ModelNotAvailableError(
                f"The model {model_id!r} cannot be had: {why}. No other model of the tier {wanted.tier} can be had "
                "either.",
                model=model_id,
                tier=wanted.tier,
            )
        return self._sorted(of_tier, _MASTER_CATEGORY)[0]

    def candidates(self) -> list[ModelCapability]:
        """Return the models that are permitted and available, from the strongest tier, the newest of each first."""
        return sorted(
            self._available(self._permitted()),
            key=lambda model: (-tier_rank(model.tier), *_newest_first(model)),
        )

    def best_of(self, provider: str) -> ModelCapability | None:
        """Return the strongest model of a provider that is permitted and available; None if there is none."""
        models = [model for model in self._available(self._permitted()) if model.provider == provider]
        tier = max((tier_rank(model.tier) for model in models), default=None)
        strongest = [model for model in models if tier_rank(model.tier) == tier]
        return self._sorted(strongest, _PEER_CATEGORY)[0] if strongest else None

    def _ranked(self, category: TaskCategory, tier: ModelTier) -> list[ModelCapability]:
        """Return the models that suffice, by tier from the lowest, and the best of each first; never none."""
        fitting = [model for model in self._available(self._permitted()) if tier_rank(model.tier) >= tier_rank(tier)]
        if not fitting:
            missing = "".join(f" {name}: {why}." for name, why in sorted(self.unavailable.items()))
            among = f" among {', '.join(sorted(self.peer_models))}" if self.peer_models else ""
            raise ModelNotAvailableError(
                f"There is no model of the tier {tier} or above{among} that can be had.{missing}",
                tier=tier,
            )
        return self._sorted(fitting, category)

    def _permitted(self) -> Iterable[ModelCapability]:
        return (model for model in self.registry if not self.peer_models or model.model_id in self.peer_models)

    def _available(self, models: Iterable[ModelCapability]) -> Iterable[ModelCapability]:
        return (model for model in models if model.enabled and model.provider not in self.unavailable)

    def _sorted(self, models: Iterable[ModelCapability], category: TaskCategory) -> list[ModelCapability]:
        among = list(models)
        generations = _generations(among)
        # By id last, so that the order of the registry decides nothing.
        return sorted(
            among,
            key=lambda model: (
                tier_rank(model.tier),
                -round(self.score(model, category), 4),
                generations[model.provider].index(_newest(model)),
                model.cost_factor,
                -model.speed_factor,
                model.model_id,
            ),
        )

    def _known(self, model_id: str) -> ModelCapability:
        model = self.registry.get(model_id)
        if model is None:
            raise ModelNotAvailableError(
                f"There is no model {model_id!r}. `nova orchestrations models` lists those that are known.",
                model=model_id,
            )
        return model

    def _require_provider(self, model: ModelCapability) -> None:
        why = self.unavailable.get(model.provider)
        if why is not None:
            raise ProviderNotAvailableError(
                f"The provider {model.provider!r} of the model {model.model_id!r} cannot be had: {why}.",
                provider=model.provider,
                model=model.model_id,
            )


def _generations(models: Iterable[ModelCapability]) -> dict[str, list[tuple[int, ...]]]:
    """Return the versions of each provider, the newest first. Those of two providers say nothing of each other."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for model in models:
        found.setdefault(model.provider, set()).add(_newest(model))
    return {provider: sorted(versions) for provider, versions in found.items()}


def _newest_first(model: ModelCapability) -> tuple[tuple[int, ...], str]:
    return _newest(model), model.model_id


def _newest(model: ModelCapability) -> tuple[int, ...]:
    """Return a model's version as a value that is least for the newest."""
    # 5.5 before 5, which the last number sees to.
    return (*(-number for number in version_of(model.model_id)), 1)


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The model of an agent. None leaves the fleet's default."""

    model: str | None
    engine: str | None = None
    category: TaskCategory | None = None
    reasoning_effort: ReasoningEffort | None = None


class ModelChooser(Protocol):
    """Chooses models for agents of orchestrations."""

    async def choose(
        self,
        tenant_id: str,
        config: OrchestrationConfig,
        *,
        role: AgentRole,
        task: str,
        model: str | None,
        complexity: Complexity | None,
    ) -> ChosenModel:
        """Return the model for a task.

        Args:
            tenant_id: Whose rankings apply.
            config: The configuration of the orchestration.
            role: Of the agent. For the MASTER a model of the same tier replaces one that is not available.
            task: What the agent is to do.
            model: The model that was asked for, as an alias or an id.
            complexity: How hard the task is.

        Raises:
            ModelNotAvailableError: The model is unknown, not permitted, or does not fit the complexity.
            ProviderNotAvailableError: The fleet does not have its provider, and no other model may take its place.
        """
        ...

    async def recommend(
        self, tenant_id: str, config: OrchestrationConfig, task_description: str, complexity: str | None = None
    ) -> Recommendation:
        """Return the model that fits a described piece of work best, and why.

        Raises:
            InvalidInput: There is no such complexity.
            ModelNotAvailableError: No model that is permitted and available suffices.
        """
        ...

    async def peers(self, tenant_id: str, config: OrchestrationConfig) -> dict[str, str]:
        """Return the models that may be asked for a second opinion, by the names to ask for.

        Each available provider stands for its strongest model; `peer_model` and `peer_models` are named too.
        """
        ...
