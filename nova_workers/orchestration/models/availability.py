"""Which providers this fleet has: its engines, their keys and profiles."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final, Protocol

from nova_workers.config import OpenAISettings, Settings
from nova_workers.orchestration.config.values import ProviderConfig

__all__ = ["Availability", "FleetAvailability", "fleet_availability", "unavailable_providers"]

_CLAUDE_VARIABLES: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
"""Each lets the engines `anthropic` and `claude_agent` answer without a key in the settings."""
_OPENAI: Final = "openai"
_OPENAI_VARIABLES: Final = ("OPENAI_API_KEY", "OPENAI_BASE_URL")


class Availability(Protocol):
    """Knows which providers can be had. Above it the choice of models; below it settings, or a probe."""

    def missing(self, provider: ProviderConfig) -> str | None:
        """Return what the fleet lacks for a provider, in words; None if it can be had."""
        ...


@dataclass(frozen=True, slots=True)
class FleetAvailability:
    """Availability by the settings of this process. It reads no network: a key that was revoked counts as there.

    Attributes:
        engines: The engines that are installed and have a key.
        profiles: The named profiles of each engine that has any.
    """

    engines: Collection[str]
    profiles: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])

    def missing(self, provider: ProviderConfig) -> str | None:
        """Return what the fleet lacks for a provider, in words; None if it can be had."""
        if not provider.enabled:
            return "the configuration disables it"
        if provider.engine not in self.engines:
            return f"the fleet has no engine {provider.engine!r} with a key"
        profiles = self.profiles.get(provider.engine, ())
        if provider.profile is not None and provider.profile not in profiles:
            return f"the settings of the engine {provider.engine!r} have no profile {provider.profile!r}"
        return None


def unavailable_providers(providers: Mapping[str, ProviderConfig], availability: Availability) -> dict[str, str]:
    """Return the providers that cannot be had, and why."""
    missing = {name: availability.missing(provider) for name, provider in providers.items()}
    return {name: why for name, why in missing.items() if why is not None}


def fleet_availability(settings: Settings, environ: Mapping[str, str]) -> FleetAvailability:
    """Return what the settings and the environment of this process say about providers."""
    model = settings.model
    engines: set[str] = set()
    if model.api_key or model.profiles or model.base_url or any(environ.get(name) for name in _CLAUDE_VARIABLES):
        engines.add("anthropic")
        if find_spec("claude_agent_sdk") is not None:
            engines.add("claude_agent")
    profiles: dict[str, Collection[str]] = {}
    if settings.openai.model is not None:
        engines.add("openai")
        profiles["openai"] = _openai_profiles(settings.openai, environ)
    if settings.environment != "production":
        engines.add("scripted")
    return FleetAvailability(engines, profiles)


def _openai_profiles(openai: OpenAISettings, environ: Mapping[str, str]) -> set[str]:
    """Return the providers of the engine `openai`. A server of the operator's own may need no key; OpenAI does."""
    own = openai.providers.get(_OPENAI)
    has_key = own is not None and (own.api_key or own.api_keys or own.base_url)
    is_reachable = has_key or any(environ.get(name) for name in _OPENAI_VARIABLES)
    return {*(openai.providers.keys() - {_OPENAI}), *((_OPENAI,) if is_reachable else ())}
