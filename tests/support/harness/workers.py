"""Workers in the test process: the real run protocol on real servers; the test controls faults and doorbells."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.clock import Clock, SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.ids import new_id
from nova_workers.base.keys import CONTROL_CHANNEL
from nova_workers.base.observability.foreign import ForeignMessages
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing
from nova_workers.base.stopping import stop_tasks
from nova_workers.bootstrap.deferred import DeferredToolServer
from nova_workers.bootstrap.executor import build_capabilities, build_executor
from nova_workers.bootstrap.orchestrations import build_orchestrator, build_starter
from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import Engine
from nova_workers.contracts.installs import NOTHING_INSTALLED
from nova_workers.contracts.runs import COMMON_POOL, Accepted, Doorbell, PlannedEffect, Submission
from nova_workers.domain.capabilities.rules import default_registry
from nova_workers.domain.capabilities.rules.deferred import DeferredRegistry
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.domain.orchestrations.rules.models.availability import FleetAvailability
from nova_workers.domain.orchestrations.rules.models.catalog import ModelCatalog, RankedModels
from nova_workers.domain.orchestrations.rules.service import Orchestrations
from nova_workers.domain.orchestrations.rules.tick import OrchestrationTicker
from nova_workers.domain.orchestrations.rules.transitions import TreeTransitions
from nova_workers.domain.runs.rules.applying import CancelApplier
from nova_workers.domain.runs.rules.cancel import Canceller, Retrier
from nova_workers.domain.runs.rules.control import ControlChannel
from nova_workers.domain.runs.rules.holds import Holds
from nova_workers.domain.runs.rules.installs import Installs
from nova_workers.domain.runs.rules.options import OptionRules
from nova_workers.domain.runs.rules.recover import Reconciler
from nova_workers.domain.runs.rules.scheduled import Scheduled
from nova_workers.domain.runs.rules.submit import Submitter
from nova_workers.domain.runs.rules.suspects import SuspectRuns
from nova_workers.domain.runs.rules.waiting import Waiting
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.domain.threads.rules.lease import LeaseKeeper
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.engines.native import CommandRunner, ShellSettings
from nova_workers.engines.scripted import ScriptedEngine
from nova_workers.ledger.database import Database, Row
from nova_workers.ledger.work import Work
from tests.support.harness.fault_injection import Crashed, FaultInjectingDatabase, FaultInjector, fault_injecting_redis
from tests.support.harness.planned_engine import PlannedEngine

AGENT = "planned"
"""The agent that plays plans (`tests.support.harness.planned_engine.plan`). `scripted` plays scripts."""

ENDED = frozenset({"succeeded", "failed", "canceled", "merged"})
_PATIENCE_S = 60.0
_LOOK_S = 0.005


class Doorbells:
    """The dispatcher of the harness: keeps doorbells until a test delivers, duplicates, drops or reorders them."""

    def __init__(self) -> None:
        self.waiting: list[Doorbell] = []
        self.effects_rung = 0
        self.deliveries_rung = 0

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Ring for queued runs."""
        self.waiting.extend(bells)

    def ring_deliveries(self) -> None:
        """Ignore doorbells of the outbox."""
        self.deliveries_rung += 1

    def ring_effects(self) -> None:
        """Ignore doorbells of effects."""
        self.effects_rung += 1

    def take(self) -> list[Doorbell]:
        """Take all doorbells."""
        taken, self.waiting = self.waiting, []
        return taken


class _UntimedHolds(Holds):
    """Leaves every next try to the reconciler, so that a test decides when it is."""

    def release_after(self, pause_s: float) -> None:
        """Set no timer."""


class Worker:
    """One worker of the harness. Create it with `Harness.worker`."""

    def __init__(self, harness: Harness, name: str, *, clock: Clock, suspects: SuspectRuns | None) -> None:
        self.name = name
        self.faults = FaultInjector()
        self.metrics = Metrics(CollectorRegistry())
        self.redis = fault_injecting_redis(harness.redis_url, self.faults)
        database = FaultInjectingDatabase(harness.database, self.faults)
        runs = harness.settings.runs
        tracing = Tracing(harness.settings.telemetry, "worker")
        self.publisher = EventPublisher(self.redis, flush_ms=harness.settings.streams.flush_ms, clock=clock)
        self._control = ControlChannel(self.redis)
        # With the publisher of the runs, as in a process: the events of a run come before what they change in a tree.
        notifier = CancelApplier(Work(database, harness.bells), self._control, self.publisher)
        work = Work(database, harness.bells, notifier)
        calls = CallTransactions(work)
        self.tools = DeferredToolServer(calls, harness.settings, ShellSettings())
        self.locks = ThreadLocks(self.redis, ttl_s=runs.lease_ttl_s)
        self.keeper = LeaseKeeper(database, self.locks, runs, clock, self.metrics)
        self.holds = _UntimedHolds(work, self.publisher, runs, clock, spread=lambda: 0.5)
        self.executor = build_executor(
            harness.settings,
            work,
            self.redis,
            harness.engines,
            worker_id=name,
            locks=self.locks,
            keeper=self.keeper,
            publisher=self.publisher,
            effects=harness.effects,
            clock=clock,
            metrics=self.metrics,
            tracing=tracing,
            orchestrated=TreeTransitions(),
            capabilities=build_capabilities(
                harness.settings,
                calls,
                self.tools,
                partial(build_orchestrator, calls, harness.models, CommandRunner(ShellSettings()), harness.settings),
                build_starter(calls.work, harness.models, harness.settings),
                clock=clock,
            ),
            suspects=suspects,
            holds=self.holds,
        )
        self._background: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, *, publisher: bool = True, keeper: bool = False, control: bool = False) -> None:
        """Start the background tasks of a worker process. Most tests call renewals instead."""
        wanted: list[tuple[bool, Coroutine[Any, Any, None]]] = [
            (publisher, self.publisher.run()),
            (keeper, self.keeper.run()),
            (control, self._control.listen(self.keeper.cancel, self.keeper.renew_soon, foreign=ForeignMessages(None))),
        ]
        for want, coroutine in wanted:
            if want:
                self._background.append(asyncio.create_task(coroutine))
            else:
                coroutine.close()

    def answer(self, bell: Doorbell) -> asyncio.Task[None]:
        """Answer a doorbell in a slot of its own."""
        task = asyncio.create_task(self._survive(bell))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def busy(self) -> bool:
        """Whether any slot works."""
        return bool(self._tasks)

    def drain(self) -> None:
        """Begin to drain, as on SIGTERM."""
        self.executor.drain()

    def stop_in_mid_step(self) -> None:
        """End the drain's grace."""
        self.executor.stop_in_mid_step()

    async def crash(self) -> None:
        """Crash: no further request reaches a server."""
        self.faults.dead = True
        await self.stop()

    async def stop(self) -> None:
        """End every task of this worker."""
        await self.holds.close()
        await stop_tasks([*self._background, *self._tasks])
        await self.tools.close()
        self.faults.dead = False
        await self.redis.aclose()
        self.faults.dead = True

    async def _survive(self, bell: Doorbell) -> None:
        """Answer; a crash ends the slot, as the process would have ended."""
        try:
            await self.executor.answer(bell)
        except Crashed:
            return


class Harness:
    """A fleet on one loop: submission, workers, reconciler.

    Attributes:
        engine: The engine of all workers.
        bells: Doorbells that were not answered yet.
    """

    tenant_id = "ten_test"

    def __init__(self, database: Database, redis: Redis, settings: Settings) -> None:
        self.database = database
        self.redis = redis
        self.settings = settings
        self.effects: tuple[PlannedEffect, ...] = (
            PlannedEffect("embeddings", "searchable"),
            PlannedEffect("title", "untitled"),
        )
        """What follows the runs of workers that are made later."""
        self.redis_url = settings.require_redis_url()
        self.engine = PlannedEngine()
        self.engines: dict[str, Engine] = {
            "planned": self.engine,
            "scripted": ScriptedEngine(environment="development"),
        }
        self.patience_s = _PATIENCE_S
        """Longest wait for one state. Engines that start programs take longer."""
        self.available = {"scripted"}
        """Engines that orchestrations may choose."""
        self.models = RankedModels(ModelCatalog(database, FleetAvailability(self.available)))
        """Every other engine counts as missing."""
        self.bells = Doorbells()
        self.metrics = Metrics(CollectorRegistry())
        self.publisher = EventPublisher(redis, flush_ms=settings.streams.flush_ms, clock=SystemClock())
        control = ControlChannel(redis)
        self.notifier = CancelApplier(Work(database, self.bells), control, self.publisher)
        self.work = Work(database, self.bells, self.notifier)
        self.canceller = Canceller(self.work)
        self.retrier = Retrier(self.work, redis)
        self.scheduled = Scheduled(self.work, self.publisher)
        capabilities = DeferredRegistry(partial(default_registry, database, settings, SystemClock()))
        self.submitter = Submitter(
            self.work, self.scheduled, options=OptionRules(capabilities, default_engine=settings.default_engine)
        )
        self.waiting = Waiting(self.work)
        self.reconciler = Reconciler(
            self.work,
            redis,
            settings.runs,
            self.metrics,
            locks=ThreadLocks(redis, ttl_s=settings.runs.lease_ttl_s),
            waiting=self.waiting,
            cancels=self.notifier,
            scheduled=self.scheduled,
            holds=Holds(self.work, self.publisher, settings.runs, SystemClock()),
            installs=Installs(self.work, redis, NOTHING_INSTALLED, COMMON_POOL, "harness"),
        )
        self.orchestrations = Orchestrations(
            self.work,
            self.models,
            settings.agent_directory,
        )
        self.ticker = OrchestrationTicker(self.work, SystemClock())
        self.workers: list[Worker] = []
        self._publishing: asyncio.Task[None] | None = None

    async def open(self, *, publish: bool = True) -> None:
        """Add the tenant and its agents. Without `publish` the events of submissions stay in their buffer."""
        if publish:
            self._publishing = asyncio.create_task(self.publisher.run())
        await self.database.execute(
            "INSERT INTO tenants (id, name) VALUES (:tenant_id, 'Test') ON CONFLICT DO NOTHING",
            tenant_id=self.tenant_id,
        )
        for agent in (AGENT, "scripted"):
            await self.add_agent(agent, {"name": agent, "engine": agent})

    async def close(self) -> None:
        """Stop every worker."""
        await self.scheduled.close()
        for worker in self.workers:
            await worker.stop()
        if self._publishing is not None:
            await stop_tasks([self._publishing])

    async def add_agent(self, agent_id: str, spec: dict[str, Any]) -> None:
        """Add an agent."""
        for table in ("agents (tenant_id, id, version, spec)", "agent_versions (tenant_id, agent_id, version, spec)"):
            await self.database.execute(
                f"INSERT INTO {table} VALUES (:tenant_id, :agent_id, 1, :spec) ON CONFLICT DO NOTHING",
                tenant_id=self.tenant_id,
                agent_id=agent_id,
                spec=spec,
            )

    async def thread(self, agent_id: str = AGENT) -> str:
        """Make an empty thread."""
        thread_id = new_id("thr")
        await self.database.execute(
            "INSERT INTO threads (id, tenant_id, agent_id) VALUES (:thread_id, :tenant_id, :agent_id)",
            thread_id=thread_id,
            tenant_id=self.tenant_id,
            agent_id=agent_id,
        )
        return thread_id

    def worker(
        self,
        *,
        publisher: bool = True,
        keeper: bool = False,
        control: bool = False,
        clock: Clock | None = None,
        suspects: SuspectRuns | None = None,
    ) -> Worker:
        """Add a worker. Without `suspects` it executes suspect runs like any other."""
        worker = Worker(self, f"wkr_{len(self.workers)}", clock=clock or SystemClock(), suspects=suspects)
        worker.start(publisher=publisher, keeper=keeper, control=control)
        self.workers.append(worker)
        return worker

    async def submit(self, text: str, thread_id: str | None = None, **fields: Any) -> Accepted:
        """Send a message."""
        agent_id = fields.pop("agent_id", None if thread_id else AGENT)
        return await self.submitter.submit(
            Submission(
                fields.pop("tenant_id", self.tenant_id),
                (text_block(text),),
                thread_id=thread_id,
                agent_id=agent_id,
                **fields,
            )
        )

    async def settle(self, *workers: Worker) -> None:
        """Deliver every doorbell, repeatedly, until none is left and no slot works."""
        turn = 0
        async with asyncio.timeout(self.patience_s):
            while self.bells.waiting:
                bells = self.bells.take()
                tasks = [workers[(turn + at) % len(workers)].answer(bell) for at, bell in enumerate(bells)]
                turn += len(bells)
                await asyncio.gather(*tasks)

    async def start_next(self, worker: Worker) -> asyncio.Task[None]:
        """Deliver the only doorbell, and return the slot's task."""
        (bell,) = self.bells.take()
        return worker.answer(bell)

    async def expire_leases(self) -> None:
        """Expire the leases and locks of dead workers."""
        await self.database.execute(
            "UPDATE runs SET lease_expires_at = now() - interval '1 second' WHERE status = 'running'"
        )
        locks = await self.redis.keys("nova:lock:*")
        if locks:
            await self.redis.delete(*locks)

    async def recover(self) -> int:
        """Expire dead workers' leases, and reconcile. Returns the number of requeued runs."""
        await self.expire_leases()
        return (await self.reconciler.reconcile()).recovered

    async def run(self, run_id: str) -> Row:
        """Return a run's row."""
        row = await self.database.fetchrow("SELECT * FROM runs WHERE id = :run_id", run_id=run_id)
        assert row is not None
        return row

    async def status(self, run_id: str) -> str:
        """Return a run's status."""
        return (await self.run(run_id))["status"]

    async def until(self, run_id: str, *statuses: str) -> Row:
        """Wait until a run has one of these statuses, and return its row."""
        async with asyncio.timeout(self.patience_s):
            while True:
                row = await self.run(run_id)
                if row["status"] in statuses:
                    return row
                await asyncio.sleep(_LOOK_S)

    async def wait_for_control_channel(self) -> None:
        """Wait until a worker is subscribed to the control channel."""
        async with asyncio.timeout(self.patience_s):
            while True:
                if (await self.redis.pubsub_numsub(CONTROL_CHANNEL))[0][1]:
                    return
                await asyncio.sleep(_LOOK_S)

    async def begin(self, worker: Worker, text: str, door: str, **fields: Any) -> tuple[Accepted, asyncio.Task[None]]:
        """Send a message, and return its run and its slot when it is blocked at a door."""
        accepted = await self.submit(text, **fields)
        slot = await self.start_next(worker)
        await self.engine.reached(door)
        return accepted, slot

    async def age_doorbells(self) -> None:
        """Make all doorbells old enough to count as lost."""
        await self.database.execute("UPDATE runs SET rang_at = now() - interval '1 hour' WHERE status = 'queued'")

    async def transcript(self, run_id: str) -> list[Row]:
        """Return the messages of a run's turn."""
        return await self.database.fetch(
            "SELECT m.* FROM messages m JOIN runs r ON r.turn_id = m.turn_id WHERE r.id = :run_id ORDER BY m.seq",
            run_id=run_id,
        )
