"""The seam to the choice of models.

Above: what spawns agents. Below: the model registry, which knows tiers, affinities and which providers the fleet has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nova_workers.errors import ModelNotAvailableError
from nova_workers.orchestration.config.values import OrchestrationConfig
from nova_workers.vocabulary import AgentRole, Complexity, ReasoningEffort, TaskCategory

__all__ = ["ChosenModel", "ModelChooser", "NamedModels"]


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


class NamedModels:
    """Takes the model that was asked for, or the configuration's default, without a registry."""

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
        """Return the model by name. See `ModelChooser`."""
        default = config.defaults.master_model if role == "MASTER" else None
        name = model or default or config.defaults.model
        if name is None:
            return ChosenModel(None)
        found = config.models.get(name)
        model_id = name if found is None else found.model_id
        peers = config.peers()
        if role != "MASTER" and peers and model_id not in peers:
            raise ModelNotAvailableError(
                f"Model {name!r} is not among the models that agents of this orchestration may use: "
                f"{', '.join(sorted(peers))}.",
                model=name,
            )
        engine = None if found is None else config.providers[found.provider].engine
        return ChosenModel(model_id, engine)
