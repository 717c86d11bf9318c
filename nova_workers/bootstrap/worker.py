"""The services of a worker process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.bootstrap.connections import Background, connect_database, connect_redis
from nova_workers.bootstrap.engines import build_engines
from nova_workers.capabilities import default_registry
from nova_workers.clock import Clock, SystemClock
from nova_workers.config import Settings
from nova_workers.contracts.engine import Engine
from nova_workers.effects.runner import EffectRunner
from nova_workers.effects.setup import effect_handlers, effect_kinds
from nova_workers.ids import new_id
from nova_workers.ledger.database import Database
from nova_workers.observability.loop import watch_loop
from nova_workers.observability.metrics import Metrics, MetricsServer
from nova_workers.observability.tracing import Tracing
from nova_workers.runs.assembly import TurnAssembler
from nova_workers.runs.broker import build_celery
from nova_workers.runs.compaction import Compactor
from nova_workers.runs.control import ControlChannel
from nova_workers.runs.dispatcher import CeleryDispatcher
from nova_workers.runs.executor import ExecutorParts, RunExecutor
from nova_workers.runs.recover import Reconciler
from nova_workers.runs.turn import TurnRunner
from nova_workers.streams.publisher import EventPublisher
from nova_workers.threads.lease import LeaseKeeper
from nova_workers.threads.lock import ThreadLocks

__all__ = ["WorkerServices", "build_worker"]

_DRAIN_EVENTS_S = 2.0


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
    _background: Background = field(default_factory=Background)

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


def build_worker(settings: Settings) -> WorkerServices:
    """Build a worker's services. Nothing is connected before `WorkerServices.start`.

    Raises:
        ConfigurationError: A setting cannot be used.
    """
    clock, metrics = SystemClock(), Metrics(CollectorRegistry())
    tracing = Tracing(settings.telemetry, "worker")
    tracing.install()
    database, redis = connect_database(settings), connect_redis(settings)
    worker_id = f"{new_id('wkr')}@{socket.gethostname()}:{os.getpid()}"
    publisher = EventPublisher(redis, flush_ms=settings.streams.flush_ms, clock=clock)
    dispatcher = CeleryDispatcher(
        build_celery(settings.require_redis_url(), fail_fast=True), metrics, threads=settings.publisher_threads
    )
    locks = ThreadLocks(redis, ttl_s=settings.runs.lease_ttl_s)
    keeper = LeaseKeeper(database, locks, settings.runs, clock, metrics)
    engines = build_engines(settings, redis, clock, metrics)
    parts = ExecutorParts(
        worker_id=worker_id,
        database=database,
        locks=locks,
        keeper=keeper,
        publisher=publisher,
        dispatcher=dispatcher,
        turns=TurnRunner(
            TurnAssembler(database, engines, default_registry(database, settings, clock), settings),
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
