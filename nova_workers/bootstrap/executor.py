"""The executor of runs, with everything that a turn needs; and the capabilities of a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redis.asyncio import Redis

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing
from nova_workers.bootstrap.deferred import DeferredToolServer
from nova_workers.bootstrap.orders import with_order_engine
from nova_workers.bootstrap.windows import EngineWindows
from nova_workers.contracts.engine import Engine
from nova_workers.contracts.ports import Embedder, OrchestrationControl
from nova_workers.contracts.runs import PlannedEffect, WorkerPool
from nova_workers.domain.capabilities.rules import CapabilityRegistry, default_registry
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.domain.orchestrations.tools.capability import OrchestrationCapability
from nova_workers.domain.runs.rules.attempts import ExecutorParts
from nova_workers.domain.runs.rules.executor import RunExecutor
from nova_workers.domain.runs.rules.fairness import FairQueue
from nova_workers.domain.runs.rules.holds import Holds
from nova_workers.domain.runs.rules.installs import Installs
from nova_workers.domain.runs.rules.orchestrated import OrchestratedRuns
from nova_workers.domain.runs.rules.suspects import SuspectRuns
from nova_workers.domain.runs.rules.turns.assembly import AgentDirectories, TurnAssembler
from nova_workers.domain.runs.rules.turns.away_servers import AwayServers
from nova_workers.domain.runs.rules.turns.compaction import Compactor
from nova_workers.domain.runs.rules.turns.prompting import Prompter
from nova_workers.domain.runs.rules.turns.runner import TurnRunner
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.domain.threads.rules.lease import LeaseKeeper
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.ledger.work import Work


def build_capabilities(
    settings: Settings,
    calls: CallTransactions,
    tools: DeferredToolServer,
    orchestrator: Callable[[CapabilityRegistry], OrchestrationCapability],
    orchestrations: OrchestrationControl,
    *,
    clock: Clock,
    embedder: Embedder | None = None,
) -> CapabilityRegistry:
    """Return the registry of capabilities.

    Args:
        settings: The fleet's settings.
        calls: Opens the transactions of tool calls.
        tools: Serves the tools, with the same transactions.
        orchestrator: Makes the tools of agents of orchestrations, with the database of `calls`.
        orchestrations: Starts orchestrations for other agents, likewise.
        clock: The time.
        embedder: Makes the vectors of message searches; without it they go by words alone.
    """
    capabilities = default_registry(
        calls.work.database,
        settings,
        clock,
        embedder=embedder,
        work=calls.work,
        orchestrations=orchestrations,
        serve=tools,
        execute=tools.program,
    )
    capabilities.add(orchestrator(capabilities))
    return capabilities


def build_executor(
    settings: Settings,
    work: Work,
    redis: Redis,
    engines: Mapping[str, Engine],
    *,
    worker_id: str,
    locks: ThreadLocks,
    keeper: LeaseKeeper,
    publisher: EventPublisher,
    effects: tuple[PlannedEffect, ...],
    clock: Clock,
    metrics: Metrics,
    tracing: Tracing,
    orchestrated: OrchestratedRuns,
    capabilities: CapabilityRegistry,
    holds: Holds,
    suspects: SuspectRuns | None = None,
) -> RunExecutor:
    """Build the executor of a worker process.

    Args:
        settings: The fleet's settings.
        work: Begins units of work.
        redis: For notifications of work orders, and for what people read of agents' tool servers.
        engines: By name.
        worker_id: As leases and logs name this process.
        locks: Locks of threads.
        keeper: Renews what the executor holds.
        publisher: Takes live events.
        effects: Post-run work, in order.
        clock: The time.
        metrics: Of the process.
        tracing: Of the process.
        orchestrated: What orchestrations do at transitions of their agents' runs.
        capabilities: Those that agents may be granted.
        suspects: Executes suspect runs; None lets this process execute them.
        holds: Of runs whose model provider cannot be used.
    """
    turns = TurnRunner(
        TurnAssembler(
            work.database,
            with_order_engine(engines, settings, work),
            capabilities,
            Prompter(work.database, settings),
            directories=AgentDirectories(settings, clock),
            settings=settings,
        ),
        Compactor(work.database, settings.model, clock, EngineWindows(settings)),
        orchestrated=orchestrated,
        work=work,
        clock=clock,
        metrics=metrics,
        tracing=tracing,
    )
    pool = WorkerPool(settings.worker.pool or "", settings.worker.trust_pools)
    installs = Installs(work, redis, capabilities.installation(), pool, worker_id)
    return RunExecutor(
        ExecutorParts(
            worker_id=worker_id,
            work=work,
            locks=locks,
            fair_queue=FairQueue(work, pool=pool, suspects=suspects, installs=installs),
            keeper=keeper,
            publisher=publisher,
            turns=turns,
            capabilities=capabilities,
            away_servers=AwayServers(redis),
            settings=settings,
            clock=clock,
            metrics=metrics,
            tracing=tracing,
            effects=effects,
            orchestrated=orchestrated,
            suspects=suspects,
            holds=holds,
            installs=installs,
        )
    )
