"""The models that installed libraries list, and those of a configuration, which says more over them.

Libraries are the Anthropic SDK with its ids, and `genai-prices` with prices and windows. Without the SDK, as where only
the command line is installed, `genai-prices` gives Anthropic's ids too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

from nova_workers.base.anthropic_models import sdk_model_ids
from nova_workers.base.vocabulary import ModelTier
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig, ResolvedModel
from nova_workers.domain.orchestrations.rules.models.capability import (
    ModelCapability,
    infer_capability,
    infer_tier,
    version_of,
)

_PRICED: Final[Mapping[str, str]] = {"claude": "anthropic", "codex": "openai", "gemini": "google", "minimax": "minimax"}
"""Our providers, by what `genai-prices` calls them. It lists none of Alibaba Model Studio: name those in `models`."""

_PRICES: Final = "nova_workers.domain.orchestrations.rules.models.price_list"
"""Imported by name with the first lookup, which an API may never make."""

_CURRENT: Final[Mapping[str, re.Pattern[str]]] = {
    "claude": re.compile(r"^claude-[a-z]+-[4-9]"),
    "codex": re.compile(r"^gpt-(?:[5-9]|\d\d)(?:[.-]|$)"),
    "gemini": re.compile(r"^gemini-(?:2\.[5-9]|[3-9]|\d\d)"),
    "minimax": re.compile(r"^minimax-m[2-9]", re.IGNORECASE),
}
"""Ids of models that are not legacy."""

_SPECIAL = re.compile(
    r"(?:^|[-._])(?:embedding|tts|image|audio|realtime|live|transcribe|translate|whisper|vision|search|instruct|cyber|"
    r"robotics|omni|computer|customtools|chat|rosalind|banana|moderation|her|video|speech)(?:$|[-._])",
    re.IGNORECASE,
)
_DATED = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")
_FAMILIES: Final = ("haiku", "sonnet", "opus")
_FAMILY = re.compile(r"^claude-(haiku|sonnet|opus)-\d")

_INPUT_SHARE: Final = 3_000
_OUTPUT_SHARE: Final = 1_000
_USUAL_USD: Final = 6.0
"""US dollars for a million tokens, three read for each written, of the model whose cost factor is 1: 3 and 15 dollars,
which the family Sonnet cost for two years."""
_TIER_PRICES: Final[Mapping[ModelTier, float]] = {"frontier": 8.0, "strong": 2.5, "fast": 0.5}
"""The least price of each tier, for a model whose id says nothing."""


def is_chat_model(model_id: str) -> bool:
    """Return whether an id has none of the words for models that do not converse, such as ``embedding``."""
    return _SPECIAL.search(model_id) is None


def known_models(aliases: Mapping[str, str] | None = None) -> dict[str, ResolvedModel]:
    """Return names that need no configuration: installed models, the newest of each family, the operator's aliases.

    Args:
        aliases: The operator's, of the provider `claude`.
    """
    known = {model.model_id: ResolvedModel(provider=model.provider, model_id=model.model_id) for model in installed()}
    for family in _FAMILIES:
        if (newest := _newest(family)) is not None:
            known[family] = known[newest]
    for name, model_id in (aliases or {}).items():
        known[name] = ResolvedModel(provider="claude", model_id=model_id)
    return known


@cache
def installed() -> tuple[ModelCapability, ...]:
    """Return the models, by id. The first call reads the price list, which takes some 30 ms."""
    found = {model.model_id: model for provider in _PRICED for model in _of_provider(provider)}
    return tuple(found[model_id] for model_id in sorted(found))


@cache
def sdk_models() -> tuple[str, ...]:
    """Return the ids that the installed Anthropic SDK lists; without it those of `genai-prices`."""
    return sdk_model_ids() or tuple(_priced_ids("claude"))


def _of_provider(provider: str) -> Iterator[ModelCapability]:
    listed = sdk_models() if provider == "claude" else _priced_ids(provider)
    for model_id in undated(listed):
        yield _priced(model_id, provider)


def _priced_ids(provider: str) -> Iterator[str]:
    ids: Iterable[str] = _prices().current_ids(_PRICED[provider])
    for model_id in ids:
        if _CURRENT[provider].search(model_id) and is_chat_model(model_id):
            yield model_id


def _prices() -> Any:
    return import_module(_PRICES)


def undated(ids: Iterable[str]) -> list[str]:
    """Return ids without the snapshots of models that are listed without a date too."""
    ids = list(ids)
    return [model_id for model_id in ids if not (_DATED.search(model_id) and _DATED.sub("", model_id) in ids)]


def _priced(model_id: str, provider: str) -> ModelCapability:
    try:
        price = _prices().price_of(model_id, _PRICED[provider], input_tokens=_INPUT_SHARE, output_tokens=_OUTPUT_SHARE)
    except LookupError:
        return infer_capability(model_id, provider).model_copy(update={"source": "installed"})
    usd: float = price.usd * 1_000_000 / (_INPUT_SHARE + _OUTPUT_SHARE)
    model = infer_capability(model_id, provider, infer_tier(model_id, _tier_by_price(usd)))
    return model.model_copy(
        update={
            "source": "installed",
            "cost_factor": round(usd / _USUAL_USD, 4) or model.cost_factor,
            "max_context_window": price.context_window,
        }
    )


def _tier_by_price(usd: float) -> ModelTier:
    for tier, least in _TIER_PRICES.items():
        if usd >= least:
            return tier
    return "economy"


def _newest(family: str) -> str | None:
    ids = [model_id for model_id in sdk_models() if (found := _FAMILY.match(model_id)) and found[1] == family]
    return max(undated(ids), key=version_of, default=None)


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
