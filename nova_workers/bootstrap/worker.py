"""The services of a worker process."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.clock import Clock, SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.ids import new_id
from nova_workers.base.observability.foreign import ForeignMessages
from nova_workers.base.observability.loop import watch_loop
from nova_workers.base.observability.metrics import Metrics, MetricsServer
from nova_workers.base.observability.tracing import Tracing
from nova_workers.bootstrap.connections import Background, connect_database, connect_redis, connect_session
from nova_workers.bootstrap.deferred import DeferredEngine, DeferredToolServer
from nova_workers.bootstrap.delivery import build_routes, build_sender
from nova_workers.bootstrap.effects import declare_effects, package_effects
from nova_workers.bootstrap.engines import build_engines
from nova_workers.bootstrap.executor import build_capabilities, build_executor
from nova_workers.bootstrap.model_choice import build_catalog, build_configs, build_model_chooser
from nova_workers.bootstrap.model_discovery import build_discovery
from nova_workers.bootstrap.orchestrations import build_orchestrator, build_starter
from nova_workers.bootstrap.orders import build_order_ticker
from nova_workers.bootstrap.shell.commands import find_shell
from nova_workers.bootstrap.triggers import build_trigger_ticker
from nova_workers.broker.dispatcher import BrokerDispatcher
from nova_workers.contracts.engine import Engine
from nova_workers.contracts.http.fleet import SandboxTrial
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.audit.rules import AuditSeals
from nova_workers.domain.capabilities.rules import CapabilityRegistry
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.domain.capabilities.rules.user_evaluators import UserEvaluators
from nova_workers.domain.delivery.rules.sender import DeliverySender
from nova_workers.domain.effects.rules.runner import EffectRunner
from nova_workers.domain.effects.rules.setup import embedding_provider
from nova_workers.domain.evaluations.rules.tick import EvaluationTicker
from nova_workers.domain.evaluations.rules.verdicts import Judges
from nova_workers.domain.orchestrations.rules.models.availability import ProviderProbes
from nova_workers.domain.orchestrations.rules.models.discovery import ModelDiscovery
from nova_workers.domain.orchestrations.rules.models.judge import ModelJudge
from nova_workers.domain.orchestrations.rules.models.rankings import RankingRefresher
from nova_workers.domain.orchestrations.rules.tick import OrchestrationTicker
from nova_workers.domain.orchestrations.rules.transitions import TreeTransitions
from nova_workers.domain.orders.rules.tick import OrderTicker
from nova_workers.domain.rollouts.rules.service import RolloutSweep
from nova_workers.domain.runs.rules.applying import CancelApplier
from nova_workers.domain.runs.rules.control import ControlChannel
from nova_workers.domain.runs.rules.drains import DrainOrders
from nova_workers.domain.runs.rules.executor import RunExecutor
from nova_workers.domain.runs.rules.holds import Holds
from nova_workers.domain.runs.rules.lost_workers import LostWorkers
from nova_workers.domain.runs.rules.recover import Reconciler
from nova_workers.domain.runs.rules.scheduled import Scheduled
from nova_workers.domain.runs.rules.suspects import ForkServer, SuspectRuns, taking_from
from nova_workers.domain.runs.rules.waiting import Waiting
from nova_workers.domain.sampling.rules.service import SamplingSweep
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.domain.tasks.rules.scheduling import TaskScheduler
from nova_workers.domain.threads.rules.lease import LeaseKeeper
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.domain.triggers.rules.firing import TriggerTicker
from nova_workers.domain.upkeep.rules.agent_moves import AgentMoves
from nova_workers.domain.upkeep.rules.backfill import Backfill
from nova_workers.domain.upkeep.rules.retention import Retention
from nova_workers.domain.upkeep.rules.schema_watch import SchemaWatch
from nova_workers.domain.upkeep.rules.tenant_end import TenantEnd
from nova_workers.domain.upkeep.rules.unused_parts import UnusedParts
from nova_workers.engines.commands import CommandRunner
from nova_workers.ledger.database import PostgresDatabase
from nova_workers.ledger.work import Work
from nova_workers.shell_sandbox import SandboxKind

_DRAIN_EVENTS_S = 2.0
_HOMES = "nova_workers.domain."
_LATE = frozenset({"genai_prices.data", "genai_prices.decompose", "httpcore2"})
"""Modules that their libraries import at first use."""


@dataclass(frozen=True)
class WorkerServices:
    """The services of a worker process."""

    settings: Settings
    worker_id: str
    clock: Clock
    database: PostgresDatabase
    schema: SchemaWatch
    redis: Redis
    publisher: EventPublisher
    dispatcher: BrokerDispatcher
    work: Work
    control: ControlChannel
    keeper: LeaseKeeper
    executor: RunExecutor
    holds: Holds
    reconciler: Reconciler
    lost_workers: LostWorkers
    drain_orders: DrainOrders
    suspects: SuspectRuns
    fork_server: ForkServer
    task_scheduler: TaskScheduler
    trigger_ticker: TriggerTicker
    model_rankings: RankingRefresher
    model_judge: ModelJudge
    model_discovery: ModelDiscovery
    provider_probes: ProviderProbes
    evaluations: EvaluationTicker
    orchestrations: OrchestrationTicker
    orders: OrderTicker
    rollouts: RolloutSweep
    sampling: SamplingSweep
    backfill: Backfill
    retention: Retention
    audit_seals: AuditSeals
    effects: EffectRunner
    deliveries: DeliverySender
    engines: Mapping[str, Engine]
    sandbox: SandboxKind | None
    sandbox_trial: SandboxTrial | None
    metrics: Metrics
    tracing: Tracing
    metrics_server: MetricsServer | None
    tools: DeferredToolServer
    capabilities: CapabilityRegistry
    is_single_run: bool
    _background: Background = field(default_factory=Background)

    async def start(self) -> None:
        """Start background tasks, and read the schema if Postgres answers at once."""
        await self.schema.look()
        self._background.start(
            schema=self.schema.run(),
            publisher=self.publisher.run(),
            keeper=self.keeper.run(),
            control=self.control.listen(
                self.keeper.cancel, self.keeper.renew_soon, foreign=ForeignMessages(self.metrics)
            ),
            lost_workers=self.lost_workers.run(),
            loop_watch=watch_loop(self.metrics, self.clock),
        )
        if self.executor.installs.installation.codes and not self.is_single_run:
            self._background.start(installs=self.executor.installs.run())
        self.holds.begin()

    async def run_effects(self) -> None:
        """Process a batch of effects, and ring again if more are due."""
        if self.executor.draining:
            self.dispatcher.ring_effects()
        elif await self.effects.run_due():
            self.dispatcher.ring_effects()

    async def run_deliveries(self) -> None:
        """Send a batch of due deliveries, and ring again if more are due."""
        if self.executor.draining or await self.deliveries.run_due():
            self.dispatcher.ring_deliveries()

    async def sweep(self) -> None:
        """Repeat what a crash left undone in orchestrations and orders; sample runs, judge and advance rollouts."""
        await self.orchestrations.tick()
        await self.orders.tick()
        await self.sampling.sweep()
        await self.rollouts.sweep()

    async def learn_about_models(self) -> None:
        """Compute old rankings of models again, ask the judges of models, and discover models: each once a day."""
        await self.model_rankings.tick()
        await self.model_judge.tick()
        await self.model_discovery.tick()

    async def aclose(self) -> None:
        """Stop and disconnect. Runs were requeued before."""
        await self.fork_server.close()
        await self.work.close()
        await self.publisher.drain(_DRAIN_EVENTS_S)
        await self._background.stop()
        await self.holds.close()
        await self.effects.close()
        await self.deliveries.close()
        for engine in self.engines.values():
            await engine.close()
        await self.tools.close()
        await self.lost_workers.close()
        await self.dispatcher.close()
        await self.redis.aclose()
        await self.database.close()
        self.tracing.close()
        if self.metrics_server is not None:
            await asyncio.to_thread(self.metrics_server.close)


def build_worker(settings: Settings, metrics: Metrics | None = None, *, is_single_run: bool = False) -> WorkerServices:
    """Build a worker's services. Nothing is connected before `WorkerServices.start`.

    Args:
        settings: The settings of the process.
        metrics: Those of the process; None makes some.
        is_single_run: Whether the process executes one run, and so may execute a suspect itself.

    Raises:
        ConfigurationError: A setting cannot be used.
    """
    clock, metrics = SystemClock(), metrics or Metrics(CollectorRegistry())
    tracing = Tracing(settings.telemetry, "worker")
    tracing.install()
    database, redis = connect_database(settings, "nova-worker", "fleet"), connect_redis(settings, "nova-worker")
    worker_id = f"{new_id('wkr')}@{socket.gethostname()}:{os.getpid()}"
    publisher = EventPublisher(
        redis, flush_ms=settings.streams.flush_ms, clock=clock, on_sent=metrics.event_lag_s.observe
    )
    dispatcher = BrokerDispatcher(redis, metrics)
    locks = ThreadLocks(redis, ttl_s=settings.runs.lease_ttl_s)
    keeper = LeaseKeeper(database, locks, settings.runs, clock, metrics)
    control = ControlChannel(redis)
    notifier = CancelApplier(Work(database, dispatcher), control, publisher)
    work = Work(database, dispatcher, notifier)
    shell = find_shell(settings)
    engines = build_engines(settings, redis, clock, metrics, shell)
    # Shared by indexing and search: the local model is a process of 180 MB.
    provider = embedding_provider(settings.effects)
    routes = build_routes(database, settings)
    chooser = build_model_chooser(database, redis, settings)
    holds = Holds(work, publisher, settings.runs, clock)
    calls = CallTransactions(work)
    tools = DeferredToolServer(calls, settings, shell)
    effects = (
        *declare_effects(
            work,
            settings.effects,
            provider=provider,
            engine=_default_engine(settings, engines),
            metrics=metrics,
            routes=routes,
        ),
        *package_effects(database, settings, metrics, tools.programs),
    )
    starter = build_starter(calls.work, chooser, settings)
    capabilities = build_capabilities(
        settings,
        calls,
        tools,
        partial(build_orchestrator, calls, chooser, CommandRunner(shell), settings),
        starter,
        clock=clock,
        embedder=provider,
    )
    evaluators = UserEvaluators(capabilities, database, CeilingRules.of(settings), tools.programs)
    fork_server = ForkServer(modules=partial(_modules_of_turns, settings, engines))
    suspects = SuspectRuns(fork_server.start, taking_from(database), dispatcher, metrics)
    executor = build_executor(
        settings,
        work,
        redis,
        engines,
        worker_id=worker_id,
        locks=locks,
        keeper=keeper,
        publisher=publisher,
        effects=tuple(effect.planned for effect in effects) if settings.effects.enabled else (),
        clock=clock,
        metrics=metrics,
        tracing=tracing,
        orchestrated=TreeTransitions(),
        capabilities=capabilities,
        suspects=None if is_single_run else suspects,
        holds=holds,
    )
    reconciler = Reconciler(
        work,
        redis,
        settings.runs,
        metrics,
        locks=locks,
        waiting=Waiting(work),
        cancels=notifier,
        scheduled=Scheduled(work, publisher),
        holds=holds,
        installs=executor.installs,
        effect_kinds=[effect.kind for effect in effects],
    )
    return WorkerServices(
        settings=settings,
        worker_id=worker_id,
        clock=clock,
        database=database,
        schema=SchemaWatch(database),
        redis=redis,
        publisher=publisher,
        dispatcher=dispatcher,
        work=work,
        control=control,
        keeper=keeper,
        executor=executor,
        holds=holds,
        reconciler=reconciler,
        lost_workers=LostWorkers(
            connect_session(settings.require_database_url()),
            database,
            keeper,
            reconciler,
            worker_id=worker_id,
            every_s=settings.runs.lost_workers_every_s,
        ),
        drain_orders=DrainOrders(database, worker_id),
        suspects=suspects,
        fork_server=fork_server,
        model_rankings=RankingRefresher(database, settings.orchestration),
        model_judge=ModelJudge(
            database,
            build_configs(database, settings),
            build_catalog(database, redis, settings),
            engines,
            settings=settings.orchestration,
            metrics=metrics,
        ),
        model_discovery=build_discovery(database, settings, clock),
        provider_probes=ProviderProbes(redis, engines, settings.orchestration, clock),
        evaluations=EvaluationTicker(work, clock, Judges(provider, evaluators)),
        orchestrations=OrchestrationTicker(work, clock),
        orders=build_order_ticker(settings, work),
        rollouts=RolloutSweep(work),
        sampling=SamplingSweep(work, clock),
        backfill=Backfill(database, redis, provider, settings.effects, metrics, clock=clock),
        retention=Retention(
            database,
            settings.retention,
            metrics,
            clock=clock,
            also=(
                TenantEnd(work, redis, settings.workspace_root).step,
                AgentMoves(work).step,
                UnusedParts(database, clock).step,
            ),
        ),
        audit_seals=AuditSeals(database),
        task_scheduler=TaskScheduler(work, settings.tasks),
        trigger_ticker=build_trigger_ticker(work, settings, metrics, planner=starter),
        effects=EffectRunner(
            database,
            settings.effects,
            leases=settings.runs,
            effects=effects,
            clock=clock,
            metrics=metrics,
            tracing=tracing,
        ),
        deliveries=build_sender(database, settings, routes, clock=clock, metrics=metrics),
        engines=engines,
        sandbox=None if shell.enclosing is None else shell.enclosing.kind,
        sandbox_trial=SandboxTrial(why_none=shell.why_none) if shell.enclosing is None else shell.enclosing.trial,
        metrics=metrics,
        tracing=tracing,
        metrics_server=_metrics_server(settings, metrics),
        tools=tools,
        capabilities=capabilities,
        is_single_run=is_single_run,
    )


def _modules_of_turns(settings: Settings, engines: Mapping[str, Engine]) -> list[str]:
    """Return the modules that turns import after this process started: a suspect's turn probably needs them too."""
    deferred = [
        engine
        for name, engine in engines.items()
        if isinstance(engine, DeferredEngine) and (engine.is_loaded or name == settings.default_engine)
    ]
    loaded = [name for name in sys.modules if name in _LATE or name.startswith(_HOMES)]
    return [*(module for engine in deferred for module in engine.modules), *loaded]


def _default_engine(settings: Settings, engines: Mapping[str, Engine]) -> Engine:
    engine = engines.get(settings.default_engine)
    if engine is None:
        raise ConfigurationError(
            f"NOVA_DEFAULT_ENGINE is {settings.default_engine!r}, but this worker has only {sorted(engines)}. "
            "'openai' needs NOVA_OPENAI__MODEL, 'claude_agent' its extra; 'scripted' is not for production."
        )
    return engine


def _metrics_server(settings: Settings, metrics: Metrics) -> MetricsServer | None:
    worker = settings.worker
    if not worker.metrics_port:
        return None
    try:
        return MetricsServer(metrics, worker.metrics_port, host=worker.metrics_host)
    except OSError as error:
        raise ConfigurationError(
            f"NOVA_WORKER__METRICS_PORT is {worker.metrics_port} on {worker.metrics_host!r} "
            f"(NOVA_WORKER__METRICS_HOST), where this worker cannot listen ({error.strerror or error}). Set "
            "another, or 0 for none."
        ) from error
