"""Which providers this fleet has: what workers find when they try them, or else what settings say."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from typing import Final, Protocol

import structlog
from pydantic import BaseModel, ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.clock import Clock
from nova_workers.base.config import OpenAISettings, OrchestrationSettings, Settings
from nova_workers.base.keys import PROVIDERS_TTL_S, provider_reports
from nova_workers.contracts.engine import Engine, ProbedEngine
from nova_workers.domain.orchestrations.rules.config.values import ProviderConfig

_log = structlog.get_logger(__name__)

_CLAUDE_VARIABLES: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
"""Each lets the engines `anthropic` and `claude_agent` answer without a key in the settings."""
_OPENAI: Final = "openai"
_OPENAI_VARIABLES: Final = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
_DISABLED: Final = "the configuration disables it"
_DEADLINE_S: Final = 1.0
"""Longest wait for the report: a choice of a model does without it rather than wait."""
_PROGRAM_VARIABLES: Final = {"codex": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
"""The vendors' variables for the keys of the engines that run a program."""


class Availability(Protocol):
    """Which providers can be had at one moment."""

    @property
    def checked_at(self) -> datetime | None:
        """When a worker tried the providers; None if settings alone decide."""
        ...

    def missing(self, provider: ProviderConfig) -> str | None:
        """Return why a provider cannot be had, in words; None if it can."""
        ...


class AvailabilitySource(Protocol):
    """Knows which providers can be had. Above it the choice of models; below it settings, or what workers found."""

    async def current(self) -> Availability:
        """Return the availability as it is known now. Asks no provider, and never raises."""
        ...


@dataclass(frozen=True, slots=True)
class FleetAvailability:
    """Availability by the settings of this process: a key that was revoked counts as there. Also a source of itself.

    Attributes:
        engines: The engines that are installed and have a key.
        profiles: The named profiles of each engine that has any.
    """

    engines: Collection[str]
    profiles: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])

    @property
    def checked_at(self) -> datetime | None:
        """See `Availability.checked_at`."""
        return None

    def missing(self, provider: ProviderConfig) -> str | None:
        """See `Availability.missing`."""
        if not provider.enabled:
            return _DISABLED
        if provider.engine not in self.engines:
            return f"the fleet has no engine {provider.engine!r} with a key"
        profiles = self.profiles.get(provider.engine, ())
        if provider.profile is not None and provider.profile not in profiles:
            return f"the settings of the engine {provider.engine!r} have no profile {provider.profile!r}"
        return None

    async def current(self) -> FleetAvailability:
        """See `AvailabilitySource.current`."""
        return self


class ProviderReport(BaseModel):
    """What a worker found when it tried the providers of its engines.

    Attributes:
        checked_at: When.
        engines: By engine and its provider (``""`` in an engine of one provider): why it cannot be had; None if it can.
    """

    checked_at: datetime
    engines: dict[str, dict[str, str | None]]


@dataclass(frozen=True, slots=True)
class ReportedAvailability:
    """Availability by a worker's report."""

    report: ProviderReport

    @property
    def checked_at(self) -> datetime | None:
        """See `Availability.checked_at`."""
        return self.report.checked_at

    def missing(self, provider: ProviderConfig) -> str | None:
        """See `Availability.missing`."""
        if not provider.enabled:
            return _DISABLED
        found = self.report.engines.get(provider.engine)
        if found is None:
            return f"the workers have no engine {provider.engine!r}"
        if provider.profile is None:
            # Its models may be of any of the engine's providers.
            return None if None in found.values() else next(iter(found.values()), None)
        if provider.profile not in found:
            return f"the workers' settings of the engine {provider.engine!r} have no profile {provider.profile!r}"
        return found[provider.profile]


@dataclass(frozen=True, slots=True)
class ProbedAvailability:
    """The latest report of a worker; without one, what the settings of this process say.

    Attributes:
        redis: Where reports are.
        by_settings: Decides before the first report, and where workers do not report.
    """

    redis: Redis
    by_settings: FleetAvailability

    async def current(self) -> Availability:
        """See `AvailabilitySource.current`."""
        try:
            async with asyncio.timeout(_DEADLINE_S):
                text = await self.redis.get(provider_reports())
            return self.by_settings if text is None else ReportedAvailability(ProviderReport.model_validate_json(text))
        except (RedisError, OSError, TimeoutError, ValidationError) as error:
            # A report of another version is no report.
            _log.warning("providers.report_unreadable", error=type(error).__name__)
            return self.by_settings


def unavailable_providers(providers: Mapping[str, ProviderConfig], availability: Availability) -> dict[str, str]:
    """Return the providers that cannot be had, and why."""
    missing = {name: availability.missing(provider) for name, provider in providers.items()}
    return {name: why for name, why in missing.items() if why is not None}


def fleet_availability(settings: Settings, environ: Mapping[str, str]) -> FleetAvailability:
    """Return the availability of providers by the settings and the environment of this process."""
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
    # Whether a worker has the program is not known here; without it, a run fails with a message that names it.
    for engine, section in (("codex", settings.codex), ("gemini", settings.gemini)):
        if section.api_key or environ.get(_PROGRAM_VARIABLES[engine]):
            engines.add(engine)
    if settings.environment != "production":
        engines.add("scripted")
    return FleetAvailability(engines, profiles)


def _openai_profiles(openai: OpenAISettings, environ: Mapping[str, str]) -> set[str]:
    """Return the providers of the engine `openai`. A server of the operator's own may need no key; OpenAI does."""
    own = openai.providers.get(_OPENAI)
    has_key = own is not None and (own.api_key or own.api_keys or own.base_url)
    is_reachable = has_key or any(environ.get(name) for name in _OPENAI_VARIABLES)
    return {*(openai.providers.keys() - {_OPENAI}), *((_OPENAI,) if is_reachable else ())}


_ANSWER_S: Final = 5.0
"""Longest wait for one answer. A provider that takes longer to list its models cannot be had."""
_SAME_PROVIDER: Final[Mapping[str, str]] = {"claude_agent": "anthropic"}
"""Engines that use the provider of another, with the same keys."""


class ProviderProbes:
    """Tries the providers of a worker's engines. Any number of workers may: the latest report counts."""

    def __init__(self, redis: Redis, engines: Mapping[str, Engine], settings: OrchestrationSettings, clock: Clock):
        self._redis = redis
        self._engines = engines
        self._settings = settings
        self._clock = clock
        self._reported: dict[str, dict[str, str | None]] = {}

    async def tick(self) -> ProviderReport | None:
        """Try all providers at once and report; None if this is switched off. A report that Redis loses is repeated."""
        if not self._settings.probe_providers:
            return None
        checked_at = self._clock.now()
        found = await asyncio.gather(*(self._probe(engine) for engine in self._engines.values()))
        engines = dict(zip(self._engines, found, strict=True))
        for name, provider in _SAME_PROVIDER.items():
            if name in engines and not any(engines[name].values()):
                engines[name] = engines.get(provider, engines[name])
        report = ProviderReport(checked_at=checked_at, engines=engines)
        try:
            await self._redis.set(provider_reports(), report.model_dump_json(), ex=PROVIDERS_TTL_S)
        except RedisError as error:
            _log.warning("providers.not_reported", error=str(error))
        if engines != self._reported:
            self._reported = engines
            _log.info("providers.probed", unavailable=_unavailable(engines))
        return report

    async def _probe(self, engine: Engine) -> dict[str, str | None]:
        """Return the findings of an engine; an engine that tries nothing counts as there, since the worker has it."""
        return dict(await engine.probe(timeout_s=_ANSWER_S)) if isinstance(engine, ProbedEngine) else {"": None}


def _unavailable(engines: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
    return {
        f"{engine}/{name}" if name else engine: why
        for engine, providers in engines.items()
        for name, why in providers.items()
        if why is not None
    }
