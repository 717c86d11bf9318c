"""Builds the engines and their dependencies."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from urllib.parse import urlsplit

import structlog
from redis.asyncio import Redis

from nova_workers import keys
from nova_workers.bootstrap.openai import build_openai, openai_catalog
from nova_workers.bootstrap.pricing import model_price
from nova_workers.bootstrap.programs import PROGRAMS, build_program, program_key, program_models
from nova_workers.clock import Clock
from nova_workers.config import Settings
from nova_workers.config.models import ModelRateLimit, ModelSettings
from nova_workers.confined import PrivateFiles
from nova_workers.contracts.engine import Engine
from nova_workers.engines.anthropic import AnthropicEngine, Profile, Windows
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.models import resolve_model
from nova_workers.engines.native import NativeTools, ShellSettings, WebSearchSettings
from nova_workers.engines.resilience import (
    ANY_MODEL,
    HealthKeys,
    Policy,
    RateLimit,
    RateLimiter,
    RedisHealth,
    Resilience,
    SharedHealth,
)
from nova_workers.engines.scripted import ScriptedEngine
from nova_workers.errors import ConfigurationError
from nova_workers.observability.metrics import Metrics
from nova_workers.outbound import Outbound, OutboundRules
from nova_workers.shell_sandbox import ShellSandbox
from nova_workers.tools import WebPages

__all__ = ["EngineWindows", "build_engines", "find_shell"]

_log = structlog.get_logger(__name__)


def build_engines(
    settings: Settings, redis: Redis, clock: Clock, metrics: Metrics, shell: ShellSettings
) -> dict[str, Engine]:
    """Return the engines of a worker by the names used in agent configuration."""
    model = settings.model
    profiles = _profiles(model)
    connections = ConnectionPool(make_transport=_mcp_guard(settings).transport, sandbox=shell.enclosing)
    native = _native_tools(settings, shell)
    connected = (redis, clock, metrics)
    by_name = [(profile.name, profile.api_key or "") for profile in profiles]
    limits = {resolve_model(name, model.aliases): limit for name, limit in model.rate_limits.items()}
    resilience = _resilience("anthropic", model, by_name, limits, connected)
    engines: dict[str, Engine] = {
        "anthropic": AnthropicEngine(
            profiles=profiles,
            prices={name: model_price(price) for name, price in model.prices.items()},
            windows=_anthropic_windows(model),
            resilience=resilience,
            base_url=model.base_url,
            aliases=model.aliases,
            max_tokens=model.max_tokens,
            request_timeout_s=model.request_timeout_s,
            first_byte_timeout_s=model.first_byte_timeout_s,
            max_connections=model.max_connections,
            native=native,
            connections=connections,
            trace_content=settings.telemetry.trace_content,
        )
    }
    catalog = openai_catalog(settings)
    if catalog is not None:
        limits = {name: limit for name, limit in model.rate_limits.items() if name == ANY_MODEL or "/" in name}
        shared = _resilience("openai", model, catalog.profiles(), limits, connected)
        engines["openai"] = build_openai(settings, catalog, shared, native, connections)
    for name in PROGRAMS:
        shared = _resilience(name, model, [("default", program_key(settings, name) or "")], {}, connected)
        engines[name] = build_program(name, settings, shared, native, connections)
    if settings.environment != "production":
        engines["scripted"] = ScriptedEngine(environment=settings.environment, connections=connections)
    if find_spec("claude_agent_sdk") is not None:
        engines["claude_agent"] = _claude_agent(settings, profiles, connections, resilience, shell)
    return engines


class EngineWindows:
    """Implements `nova_workers.contracts.ports.ModelWindows` for all engines."""

    def __init__(self, settings: Settings) -> None:
        self._default = _anthropic_windows(settings.model)
        self._openai = openai_catalog(settings)
        self._programs = {name: program_models(settings, name) for name in PROGRAMS}

    def context_tokens(self, engine: str, model: str) -> int:
        """See `ModelWindows.context_tokens`."""
        if engine in self._programs:
            return self._programs[engine].context_tokens(model)
        windows = self._openai if engine == "openai" and self._openai is not None else self._default
        return windows.context_tokens(model)


def _anthropic_windows(model: ModelSettings) -> Windows:
    return Windows(model.context_windows, aliases=model.aliases, unknown_tokens=model.context_window_tokens)


def _claude_agent(
    settings: Settings,
    profiles: tuple[Profile, ...],
    connections: ConnectionPool,
    resilience: Resilience,
    shell: ShellSettings,
) -> Engine:
    """Build the engine of the extra. It is imported by name, because its module needs the extra."""
    model, own = settings.model, settings.claude_agent
    module = import_module("nova_workers.engines.claude_agent")
    return module.ClaudeAgentEngine(
        environment=os.environ,
        profiles=profiles,
        base_url=model.base_url,
        resilience=resilience,
        windows=_anthropic_windows(model),
        aliases=model.aliases,
        max_tokens=model.max_tokens,
        request_timeout_s=model.request_timeout_s,
        max_processes=own.max_processes,
        program=own.program,
        fetcher=_fetcher(settings),
        shell=shell,
        prices={name: model_price(price) for name, price in model.prices.items()},
        connections=connections,
        private=_private_files(settings),
    )


def _profiles(model: ModelSettings) -> tuple[Profile, ...]:
    if not model.profiles:
        return (Profile(api_key=None if model.api_key is None else model.api_key.get_secret_value()),)
    return tuple(
        Profile(profile.name, profile.api_key.get_secret_value(), profile.base_url) for profile in model.profiles
    )


def _resilience(
    provider: str,
    model: ModelSettings,
    profiles: Iterable[tuple[str, str]],
    rate_limits: Mapping[str, ModelRateLimit],
    connected: tuple[Redis, Clock, Metrics],
) -> Resilience:
    """Return the state of a provider's keys and models that all workers share.

    Args:
        provider: Its name in keys of Redis.
        model: The policy.
        profiles: Names of keys, and the keys: a replaced key starts without the cool-down of the old one.
        rate_limits: By the id of a model; ``*`` is for each model that is not named.
        connected: What the state is stored in, and measured with.
    """
    redis, clock, metrics = connected
    policy = Policy(
        max_retries=model.max_retries, breaker_failures=model.breaker_failures, breaker_open_s=model.breaker_open_s
    )
    digests = {name: hashlib.sha256(key.encode()).hexdigest()[:8] for name, key in profiles}
    names = HealthKeys(
        breaker=lambda name: keys.model_breaker(provider, name),
        cooldown=lambda profile, name: keys.profile_cooldown(provider, profile, digests[profile], name),
    )
    rates = {name: RateLimit(limit.requests_per_minute, limit.tokens_per_minute) for name, limit in rate_limits.items()}
    return Resilience(
        policy,
        SharedHealth(RedisHealth(redis, names, policy, clock.monotonic_s), policy, clock.monotonic_s),
        RateLimiter(rates, redis=redis, key_prefix=keys.model_rate_limits(provider), namespace=provider),
        metrics,
        clock.monotonic_s,
    )


def find_shell(settings: Settings) -> ShellSettings:
    """Return how commands are run, after a trial of this machine's sandbox. Blocks briefly.

    Raises:
        ConfigurationError: All commands need a sandbox, and there is none.
    """
    tools = settings.tools
    enclosing, why_none = _find_sandbox(settings)
    if enclosing is None and tools.shell_sandbox:
        raise ConfigurationError(
            f"NOVA_TOOLS__SHELL_SANDBOX is on. {why_none} Or turn it off, and give the workers a container of their "
            "own."
        )
    return ShellSettings(
        timeout_s=tools.shell_timeout_s,
        max_timeout_s=tools.shell_max_timeout_s,
        output_bytes=tools.shell_output_bytes,
        passed_on=tools.shell_environment,
        sandbox=enclosing if tools.shell_sandbox else None,
        enclosing=enclosing,
        why_none=why_none,
    )


def _find_sandbox(settings: Settings) -> tuple[ShellSandbox | None, str]:
    """Return this machine's sandbox; or None, and why there is none."""
    private = _private_files(settings)
    try:
        sandbox = ShellSandbox.find(
            network=settings.tools.shell_sandbox_network,
            hidden=(str(private.home), str(private.workspace)),
            private=private,
            choice=settings.tools.sandbox,
        )
    except ConfigurationError as error:
        _log.warning("sandbox.none", reason=error.message)
        return None, error.message
    _log.info("sandbox.found", kind=sandbox.kind, landlock=sandbox.landlock)
    return sandbox, ""


def _private_files(settings: Settings) -> PrivateFiles:
    return PrivateFiles(settings.home, settings.workspace_root)


def _native_tools(settings: Settings, shell: ShellSettings) -> NativeTools:
    tools = settings.tools
    return NativeTools(
        fetcher=_fetcher(settings),
        shell=shell,
        web_search=WebSearchSettings(max_uses=tools.web_search_max_uses) if tools.web_search else None,
        private=_private_files(settings),
    )


def _mcp_guard(settings: Settings) -> Outbound:
    """Return the guard between agents' configured MCP servers and the operator's network."""
    tools = settings.tools
    browser = urlsplit(tools.browser_command or "")
    # A browser server given by URL is configured by the operator, so it is allowed.
    admitted = (browser.netloc,) if browser.scheme in ("http", "https") else ()
    return Outbound(OutboundRules(ports=tools.fetch_ports, allow_hosts=(*tools.mcp_allow_hosts, *admitted)))


def _fetcher(settings: Settings) -> WebPages:
    tools = settings.tools
    rules = OutboundRules(
        ports=tools.fetch_ports,
        allow_hosts=tools.fetch_allow_hosts,
        max_redirects=tools.fetch_max_redirects,
        max_bytes=tools.fetch_max_bytes,
        timeout_s=tools.fetch_timeout_s,
    )
    return WebPages(Outbound(rules))
