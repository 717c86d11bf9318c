"""The seam to the choice of models.

Above: what spawns agents. Below: the model registry, which knows tiers, affinities and which providers the fleet has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nova_workers.base.vocabulary import AgentRole, Complexity, ReasoningEffort, TaskCategory
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.choice import Recommendation

__all__ = ["ChosenModel", "ModelChooser"]


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
