"""The models of a configuration: what libraries list, with what the configuration says over it."""

from collections.abc import Iterable, Iterator

from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.capability import ModelCapability, infer_capability
from nova_workers.domain.orchestrations.rules.models.installed import installed

__all__ = ["ModelRegistry"]


class ModelRegistry:
    """Models by id, in the order of their ids. Immutable."""

    def __init__(self, models: Iterable[ModelCapability]) -> None:
        self._models = {model.model_id: model for model in sorted(models, key=lambda model: model.model_id)}

    @classmethod
    def of(cls, config: OrchestrationConfig) -> "ModelRegistry":
        """Return every model that a configuration's names stand for, with its overrides.

        A model that no library lists is what its id suggests.
        """
        listed = {model.model_id: model for model in installed()}
        models: dict[str, ModelCapability] = {}
        for model in config.models.values():
            found = listed.get(model.model_id)
            if found is None or found.provider != model.provider:
                found = infer_capability(model.model_id, model.provider)
            models[model.model_id] = found
        for name, override in config.model_registry.items():
            # An entry may name a model by an alias too.
            model_id = config.models[name].model_id if name in config.models else name
            if (capability := models.get(model_id)) is not None:
                models[model_id] = capability.overridden(override)
        return cls(models.values())

    def __iter__(self) -> Iterator[ModelCapability]:
        """Iterate over the models, by id."""
        return iter(self._models.values())

    def get(self, model_id: str) -> ModelCapability | None:
        """Return a model, or None if it is not known."""
        return self._models.get(model_id)
