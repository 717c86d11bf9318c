"""Tries which providers can be had, and reports it to all processes of the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.clock import Clock
from nova_workers.base.config import OrchestrationSettings
from nova_workers.base.keys import PROVIDERS_TTL_S, provider_reports
from nova_workers.contracts.engine import Engine, ProbedEngine
from nova_workers.domain.orchestrations.rules.models.availability import ProviderReport

__all__ = ["ProviderProbes"]

_log = structlog.get_logger(__name__)

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
        """Return what an engine found; an engine that tries nothing counts as there, since the worker has it."""
        return dict(await engine.probe(timeout_s=_ANSWER_S)) if isinstance(engine, ProbedEngine) else {"": None}


def _unavailable(engines: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
    return {
        f"{engine}/{name}" if name else engine: why
        for engine, providers in engines.items()
        for name, why in providers.items()
        if why is not None
    }
