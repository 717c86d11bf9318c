"""Names the engines of a worker. Each is loaded when a turn first needs it: see `nova_workers.bootstrap.deferred`."""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec

from redis.asyncio import Redis

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.bootstrap.anthropic import anthropic_engine
from nova_workers.bootstrap.deferred import DeferredEngine, Probe
from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.bootstrap.openai import openai_catalog
from nova_workers.bootstrap.programs import PROGRAMS, program_settings
from nova_workers.contracts.engine import Engine
from nova_workers.engines.claude_program import why_not_started
from nova_workers.engines.commands import ShellSettings
from nova_workers.engines.programs.environment import inherited
from nova_workers.engines.programs.vendor import why_not_usable

_MODULES = "nova_workers.bootstrap.on_demand"


def build_engines(
    settings: Settings, redis: Redis, clock: Clock, metrics: Metrics, shell: ShellSettings
) -> dict[str, Engine]:
    """Return the engines of a worker by the names used in agent configuration.

    Raises:
        ConfigurationError: The settings of an engine cannot be used.
    """
    parts = EngineParts(settings, redis, clock, metrics, shell)
    engines: dict[str, Engine] = {"anthropic": anthropic_engine(parts, module=f"{_MODULES}.anthropic")}
    if openai_catalog(settings) is not None:
        engines["openai"] = DeferredEngine("openai", parts, module=f"{_MODULES}.openai")
    for name, program in PROGRAMS.items():
        usable = partial(why_not_usable, program.vendor, program_settings(settings, name))
        engines[name] = DeferredEngine(
            name, parts, module=f"{_MODULES}.programs", probe=lambda _, usable=usable: usable()
        )
    engines["code"] = DeferredEngine("code", parts, module=f"{_MODULES}.code", sparingly=(), probe=_always_usable)
    if settings.environment != "production":
        engines["scripted"] = DeferredEngine(
            "scripted", parts, module=f"{_MODULES}.scripted", sparingly=(), probe=_always_usable
        )
    if find_spec("claude_agent_sdk") is not None:
        engines["claude_agent"] = DeferredEngine(
            "claude_agent", parts, module=f"{_MODULES}.claude_agent", probe=_claude_probe(settings)
        )
    return engines


async def _always_usable(_: float) -> str | None:
    return None


def _claude_probe(settings: Settings) -> Probe:
    async def probe(timeout_s: float) -> str | None:
        return await why_not_started(settings.claude_agent.program, inherited(os.environ), timeout_s=timeout_s)

    return probe
