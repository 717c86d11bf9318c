"""Which provider serves a model, and what is known of the model."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nova_workers.base.errors import ConfigurationError, EngineFailure
from nova_workers.engines.models import ALIASES
from nova_workers.engines.openai.provider import DEFAULT_PROVIDER, OpenAIProvider
from nova_workers.engines.prices import PriceList
from nova_workers.engines.resilience import ModelLimits

_UNKNOWN_TOKENS = 200_000
_REASONING = re.compile(r"o\d|gpt-(?:[5-9]|\d\d)(?!.*chat)")
"""OpenAI's models that reason."""


@dataclass(frozen=True, slots=True)
class Target:
    """A model at its provider.

    Attributes:
        model: The model's name there.
    """

    provider: OpenAIProvider
    model: str

    @property
    def id(self) -> str:
        """The name under which the fleet counts and limits the model."""
        return f"{self.provider.name}/{self.model}"

    @property
    def reasons(self) -> bool:
        """Whether this is one of OpenAI's own models that reason: they refuse a temperature."""
        return self.provider.is_openai and _REASONING.match(self.model) is not None


class Catalog:
    """Resolves names of models."""

    def __init__(
        self,
        providers: Iterable[OpenAIProvider],
        *,
        aliases: Mapping[str, str] | None = None,
        default_model: str | None = None,
        unknown_tokens: int = _UNKNOWN_TOKENS,
    ) -> None:
        """Take the operator's settings.

        Args:
            providers: The providers, of different names.
            aliases: Models by alias.
            default_model: What the aliases ``haiku``, ``sonnet`` and ``opus`` mean if `aliases` does not say.
            unknown_tokens: The window of an unknown model.

        Raises:
            ConfigurationError: Two providers have the same name, or name the same model.
        """
        self.providers: dict[str, OpenAIProvider] = {}
        self._owners: dict[str, OpenAIProvider] = {}
        for provider in providers:
            if provider.name in self.providers:
                raise ConfigurationError(f"Two providers of the engine 'openai' have the same name: {provider.name!r}.")
            self.providers[provider.name] = provider
            for model in provider.models:
                other = self._owners.setdefault(model, provider)
                if other is not provider:
                    raise ConfigurationError(
                        f"The providers {other.name!r} and {provider.name!r} of the engine 'openai' both list the "
                        f"model {model!r}. List it with one of them only; for the other, name it "
                        f"'{provider.name}/{model}'."
                    )
        self._aliases = dict.fromkeys(ALIASES, default_model) | dict(aliases or {}) if default_model else aliases or {}
        self._unknown_tokens = unknown_tokens
        self._prices = {name: PriceList(each.price_list, each.prices) for name, each in self.providers.items()}

    def target(self, name: str) -> Target:
        """Return the model that `name` means: an alias, ``provider/model``, or a model that a provider lists.

        Raises:
            EngineFailure: It is an alias without a model here, or no provider serves it.
        """
        given = self._aliases.get(name, name)
        if given in ALIASES:
            raise EngineFailure(
                f"The model {name!r} means no model of the engine 'openai'. Give the agent a model, such as "
                "'openai/gpt-5', or say what the alias means with NOVA_OPENAI__MODEL or NOVA_OPENAI__ALIASES.",
                kind="model_error",
                retryable=False,
            )
        owner = self._owners.get(given)
        if owner is not None:
            return Target(owner, given)
        prefix, slash, model = given.partition("/")
        if slash and model and prefix in self.providers:
            return Target(self.providers[prefix], model)
        default = self.providers.get(DEFAULT_PROVIDER)
        if default is None:
            raise EngineFailure(
                f"No provider of the engine 'openai' serves the model {given!r}. Name it as 'provider/model', with one "
                f"of {sorted(self.providers)}, or list it in the provider's models (NOVA_OPENAI__PROVIDERS).",
                kind="model_error",
                retryable=False,
            )
        return Target(default, given)

    def id(self, name: str) -> str:
        """Return the id of the model that `name` means. Raises as `target`."""
        return self.target(name).id

    def profiles(self) -> tuple[tuple[str, str], ...]:
        """Return the names of all profiles, with their keys."""
        return tuple(
            (name, key.api_key or "") for provider in self.providers.values() for name, key in provider.profiles
        )

    def prices(self, target: Target) -> PriceList:
        """Return the prices of the model's provider."""
        return self._prices[target.provider.name]

    def context_tokens(self, model: str) -> int:
        """Return the context window of a model; the default for one that is unknown."""
        try:
            target = self.target(model)
        except EngineFailure:
            return self._unknown_tokens
        configured = target.provider.context_windows
        return (
            configured.get(target.model)
            or configured.get("*")
            or self.prices(target).context_tokens(target.model)
            or self._unknown_tokens
        )

    def limits(self, model: str) -> ModelLimits:
        """Return the known limits of a model."""
        return ModelLimits(self.context_tokens(model))
