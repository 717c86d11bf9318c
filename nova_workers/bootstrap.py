"""The only place that builds and connects things. Everything else is handed what it needs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from prometheus_client import CollectorRegistry
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from nova_workers import keys
from nova_workers.capabilities import CapabilityRegistry, default_registry
from nova_workers.clock import Clock, SystemClock
from nova_workers.config import Settings
from nova_workers.config.settings import ModelPriceSetting, ModelSettings
from nova_workers.contracts.engine import Engine
from nova_workers.effects.runner import EffectRunner
from nova_workers.effects.setup import effect_handlers, effect_kinds
from nova_workers.engines.anthropic import AnthropicEngine, ModelPrice, Profile
from nova_workers.engines.connection_pool import ConnectionPool
from nova_workers.engines.native import NativeTools, ShellSandbox, ShellSettings, WebSearchSettings
from nova_workers.engines.resilience import (
    HealthKeys,
    Policy,
    RateLimit,
    RateLimiter,
    RedisHealth,
    Resilience,
    SharedHealth,
)
from nova_workers.engines.scripted import ScriptedEngine
from nova_workers.ids import new_id
from nova_workers.ledger.database import Database
from nova_workers.observability.loop import watch_loop
from nova_workers.observability.metrics import Metrics, MetricsServer
from nova_workers.observability.tracing import Tracing
from nova_workers.runs.assembly import TurnAssembler
from nova_workers.runs.broker import build_celery
from nova_workers.runs.cancel import Canceller
from nova_workers.runs.compaction import Compactor
from nova_workers.runs.control import ControlChannel
from nova_workers.runs.dispatcher import CeleryDispatcher
from nova_workers.runs.executor import ExecutorParts, RunExecutor
from nova_workers.runs.recover import Reconciler
from nova_workers.runs.submit import Submitter
from nova_workers.runs.turn import TurnRunner
from nova_workers.stopping import stop_tasks
from nova_workers.streams.hub import StreamHub
from nova_workers.streams.publisher import EventPublisher
from nova_workers.threads.lease import LeaseKeeper
from nova_workers.threads.lock import ThreadLocks
from nova_workers.tools import Outbound, OutboundRules, WebPages

__all__ = ["ApiServices", "WorkerServices", "build_api", "build_worker"]

_DRAIN_EVENTS_S = 2.0
_REDIS_CONNECTIONS = 32
_REDIS_WAIT_S = 5.0
_PROVIDER = "anthropic"


@dataclass
class _Background:
    """Tasks that live as long as their process."""

    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def start(self, **coroutines: Coroutine[Any, Any, None]) -> None:
        """Start each under its name."""
        self.tasks += [asyncio.create_task(coroutine, name=name) for name, coroutine in coroutines.items()]

    async def stop(self) -> None:
        """Cancel all and wait for their end."""
        await stop_tasks(self.tasks)


@dataclass(frozen=True)
class ApiServices:
    """What the API process works with."""

    settings: Settings
    clock: Clock
    database: Database
    redis: Redis
    hub: StreamHub
    publisher: EventPublisher
    dispatcher: CeleryDispatcher
    submitter: Submitter
    canceller: Canceller
    capabilities: CapabilityRegistry
    metrics: Metrics
    tracing: Tracing
    _background: _Background = field(default_factory=_Background)

    async def start(self) -> None:
        """Start what runs in the background. Servers that are down are waited for, not insisted on."""
        self._background.start(
            hub=self.hub.run(), publisher=self.publisher.run(), loop_watch=watch_loop(self.metrics, self.clock)
        )

    async def aclose(self) -> None:
        """Stop and disconnect."""
        await self.publisher.drain(_DRAIN_EVENTS_S)
        await self._background.stop()
        await asyncio.to_thread(self.dispatcher.close)
        await self.hub.close()
        await self.redis.aclose()
        await self.database.close()
        self.tracing.close()


@dataclass(frozen=True)
class WorkerServices:
    """What a worker process works with."""

    settings: Settings
    worker_id: str
    clock: Clock
    database: Database
    redis: Redis
    publisher: EventPublisher
    dispatcher: CeleryDispatcher
    control: ControlChannel
    keeper: LeaseKeeper
    executor: RunExecutor
    reconciler: Reconciler
    effects: EffectRunner
    engines: Mapping[str, Engine]
    metrics: Metrics
    tracing: Tracing
    metrics_server: MetricsServer | None
    _background: _Background = field(default_factory=_Background)

    async def start(self) -> None:
        """Start what runs in the background."""
        self._background.start(
            publisher=self.publisher.run(),
            keeper=self.keeper.run(),
            control=self.control.listen(self.keeper.cancel),
            loop_watch=watch_loop(self.metrics, self.clock),
        )

    async def run_effects(self) -> None:
        """Work a batch of effects, and ring again while there is more."""
        if self.executor.draining:
            self.dispatcher.ring_effects()
        elif await self.effects.run_due():
            self.dispatcher.ring_effects()

    async def aclose(self) -> None:
        """Stop and disconnect. Runs were handed back before."""
        await self.publisher.drain(_DRAIN_EVENTS_S)
        await self._background.stop()
        await self.effects.close()
        for engine in self.engines.values():
            await engine.close()
        await asyncio.to_thread(self.dispatcher.close)
        await self.redis.aclose()
        await self.database.close()
        self.tracing.close()
        if self.metrics_server is not None:
            await asyncio.to_thread(self.metrics_server.close)


def build_api(settings: Settings) -> ApiServices:
    """Build the API's services. Nothing is connected before `ApiServices.start`."""
    clock, metrics = SystemClock(), Metrics(CollectorRegistry())
    tracing = Tracing(settings.telemetry, "api")
    database, redis = _database(settings), _redis(settings)
    publisher = EventPublisher(redis, flush_ms=settings.streams.flush_ms, clock=clock)
    control = ControlChannel(redis)
    dispatcher = CeleryDispatcher(
        build_celery(settings.require_redis_url(), fail_fast=True), metrics, threads=settings.publisher_threads
    )
    return ApiServices(
        settings=settings,
        clock=clock,
        database=database,
        redis=redis,
        hub=StreamHub(redis),
        publisher=publisher,
        dispatcher=dispatcher,
        submitter=Submitter(database, dispatcher, control, idempotency_ttl_s=settings.runs.idempotency_ttl_s),
        canceller=Canceller(database, control, publisher, dispatcher),
        capabilities=default_registry(database),
        metrics=metrics,
        tracing=tracing,
    )


def build_worker(settings: Settings) -> WorkerServices:
    """Build a worker's services. Nothing is connected before `WorkerServices.start`.

    Raises:
        ConfigurationError: A setting cannot be used.
    """
    clock, metrics = SystemClock(), Metrics(CollectorRegistry())
    tracing = Tracing(settings.telemetry, "worker")
    tracing.install()
    database, redis = _database(settings), _redis(settings)
    worker_id = f"{new_id('wkr')}@{socket.gethostname()}:{os.getpid()}"
    publisher = EventPublisher(redis, flush_ms=settings.streams.flush_ms, clock=clock)
    dispatcher = CeleryDispatcher(
        build_celery(settings.require_redis_url(), fail_fast=True), metrics, threads=settings.publisher_threads
    )
    locks = ThreadLocks(redis, ttl_s=settings.runs.lease_ttl_s)
    keeper = LeaseKeeper(database, locks, settings.runs, clock, metrics)
    engines = _engines(settings, redis, clock, metrics)
    parts = ExecutorParts(
        worker_id=worker_id,
        database=database,
        locks=locks,
        keeper=keeper,
        publisher=publisher,
        dispatcher=dispatcher,
        turns=TurnRunner(
            TurnAssembler(database, engines, default_registry(database), settings),
            Compactor(database, settings.model, clock),
            clock=clock,
            metrics=metrics,
            tracing=tracing,
        ),
        settings=settings,
        clock=clock,
        metrics=metrics,
        tracing=tracing,
        effects=effect_kinds(settings.effects),
    )
    handlers = effect_handlers(database, settings.effects, engine=engines[settings.default_engine], metrics=metrics)
    return WorkerServices(
        settings=settings,
        worker_id=worker_id,
        clock=clock,
        database=database,
        redis=redis,
        publisher=publisher,
        dispatcher=dispatcher,
        control=ControlChannel(redis),
        keeper=keeper,
        executor=RunExecutor(parts),
        reconciler=Reconciler(database, redis, dispatcher, settings.runs, metrics),
        effects=EffectRunner(
            database, settings.effects, handlers=handlers, clock=clock, metrics=metrics, tracing=tracing
        ),
        engines=engines,
        metrics=metrics,
        tracing=tracing,
        metrics_server=MetricsServer(metrics, settings.worker.metrics_port) if settings.worker.metrics_port else None,
    )


def _engines(settings: Settings, redis: Redis, clock: Clock, metrics: Metrics) -> dict[str, Engine]:
    model = settings.model
    profiles = _profiles(model)
    connections = ConnectionPool()
    engines: dict[str, Engine] = {
        "anthropic": AnthropicEngine(
            profiles=profiles,
            prices={name: _price(price) for name, price in model.prices.items()},
            context_windows=model.context_windows,
            resilience=_resilience(model, profiles, redis, clock, metrics),
            base_url=model.base_url,
            aliases=model.aliases,
            max_tokens=model.max_tokens,
            request_timeout_s=model.request_timeout_s,
            max_connections=model.max_connections,
            native=_native_tools(settings),
            connections=connections,
            trace_content=settings.telemetry.trace_content,
        )
    }
    if settings.environment != "production":
        engines["scripted"] = ScriptedEngine(environment=settings.environment, connections=connections)
    if find_spec("claude_agent_sdk") is not None:
        engines["claude_agent"] = _claude_agent(settings, connections)
    return engines


def _claude_agent(settings: Settings, connections: ConnectionPool) -> Engine:
    """Build the engine of the extra. It is imported by name: without the extra its module cannot be."""
    model, own = settings.model, settings.claude_agent
    module = import_module("nova_workers.engines.claude_agent")
    return module.ClaudeAgentEngine(
        environment=os.environ,
        api_key=_profiles(model)[0].api_key,
        base_url=_profiles(model)[0].base_url or model.base_url,
        aliases=model.aliases,
        max_tokens=model.max_tokens,
        request_timeout_s=model.request_timeout_s,
        max_retries=model.max_retries,
        max_processes=own.max_processes,
        program=own.program,
        fetcher=_fetcher(settings),
        prices={name: _price(price) for name, price in model.prices.items()},
        connections=connections,
    )


def _profiles(model: ModelSettings) -> tuple[Profile, ...]:
    if not model.profiles:
        return (Profile(api_key=None if model.api_key is None else model.api_key.get_secret_value()),)
    return tuple(
        Profile(profile.name, profile.api_key.get_secret_value(), profile.base_url) for profile in model.profiles
    )


def _price(price: ModelPriceSetting) -> ModelPrice:
    cache_read = price.input / 10 if price.cache_read is None else price.cache_read
    cache_write = price.input * 1.25 if price.cache_write is None else price.cache_write
    return ModelPrice(price.input, price.output, cache_read, cache_write)


def _resilience(
    model: ModelSettings, profiles: tuple[Profile, ...], redis: Redis, clock: Clock, metrics: Metrics
) -> Resilience:
    policy = Policy(
        max_retries=model.max_retries, breaker_failures=model.breaker_failures, breaker_open_s=model.breaker_open_s
    )
    digests = {profile.name: hashlib.sha256((profile.api_key or "").encode()).hexdigest()[:8] for profile in profiles}
    names = HealthKeys(
        breaker=lambda name: keys.model_breaker(_PROVIDER, name),
        cooldown=lambda profile, name: keys.profile_cooldown(_PROVIDER, profile, digests[profile], name),
    )
    limits = {
        name: RateLimit(limit.requests_per_minute, limit.tokens_per_minute) for name, limit in model.rate_limits.items()
    }
    return Resilience(
        policy,
        SharedHealth(RedisHealth(redis, names, policy, clock.monotonic_s), policy, clock.monotonic_s),
        RateLimiter(limits, redis=redis, key_prefix=keys.model_rate_limits(_PROVIDER)),
        metrics,
        clock.monotonic_s,
    )


def _native_tools(settings: Settings) -> NativeTools:
    tools = settings.tools
    sandbox = None
    if tools.shell_sandbox == "bubblewrap":
        sandbox = ShellSandbox.find(network=tools.shell_sandbox_network, hidden=(str(settings.home),))
    shell = ShellSettings(
        timeout_s=tools.shell_timeout_s,
        max_timeout_s=tools.shell_max_timeout_s,
        output_bytes=tools.shell_output_bytes,
        passed_on=tools.shell_environment,
        sandbox=sandbox,
    )
    return NativeTools(
        fetcher=_fetcher(settings),
        shell=shell,
        web_search=WebSearchSettings(max_uses=tools.web_search_max_uses) if tools.web_search else None,
    )


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


def _database(settings: Settings) -> Database:
    return Database(settings.require_database_url(), pool_size=settings.database_pool)


def _redis(settings: Settings) -> Redis:
    url = settings.require_redis_url()
    tcp: dict[str, Any] = {} if url.startswith("unix:") else {"socket_keepalive": True}
    # Bounded: whoever finds no connection waits for one, instead of opening one more for each follower.
    pool = BlockingConnectionPool.from_url(
        url,
        **tcp,
        max_connections=_REDIS_CONNECTIONS,
        timeout=_REDIS_WAIT_S,
        socket_timeout=5,
        socket_connect_timeout=2,
        health_check_interval=15,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 2),
    )
    return Redis.from_pool(pool)
