"""Plays turns before the first real one, on the sessions of Postgres that it will use, and rolls them back.

An executor of its own, with the worker's parts where they only read, plays them on a ledger of one transaction. Its
engine is one that answers at once; nothing is published, rung, measured or logged, and no folder is made.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Final

from prometheus_client import CollectorRegistry
from redis.exceptions import RedisError

from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import unrecorded
from nova_workers.bootstrap.executor import build_executor
from nova_workers.bootstrap.worker import WorkerServices
from nova_workers.broker.redis_connections import open_connections
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.default_agents import DEFAULT_AGENTS
from nova_workers.contracts.engine import EngineOptions, EngineResult, StepRecord, TrustLevel, TurnListener
from nova_workers.domain.orchestrations.rules.transitions import TreeTransitions
from nova_workers.domain.runs.rules.executor import RunExecutor
from nova_workers.domain.runs.rules.holds import Holds
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.domain.threads.rules.lease import LeaseKeeper
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.domain.upkeep.rules.rehearsal import PLANNED_AFTER, RehearsalLedger, rehearsal
from nova_workers.ledger.work import Work

_SESSIONS: Final = 2
"""An idle worker uses its oldest session for almost everything, and the second one while a tick has that."""

_CONNECTIONS: Final = 3
"""The connections to Redis: a turn sends events while it locks and rings."""

# Without native tools an agent has no folder.
_AGENT: Final = DEFAULT_AGENTS["nova"].model_copy(update={"trust": "sandbox"})


async def rehearse_turns(services: WorkerServices) -> None:
    """Rehearse turns on the sessions that the first messages will use.

    Through a pooler there is nothing to rehearse for: no session of the server is this process's own.

    Raises:
        Unavailable: The database does not answer.
    """
    if not services.schema.fits or await services.database.is_shared():
        return
    with suppress(RedisError):
        await open_connections(services.redis, _CONNECTIONS)
    with unrecorded():
        async with AsyncExitStack() as rehearsals:
            for _ in range(_SESSIONS):
                # Each gets a session of its own, since those before it still have theirs.
                ledger = await rehearsals.enter_async_context(rehearsal(services.database, _AGENT))
                executor = _executor(services, ledger)
                for _ in range(PLANNED_AFTER):
                    accepted = await ledger.submit()
                    await executor.answer_alone(accepted.doorbell)
                    # Requests, and the turns of others, go on between two of them.
                    await asyncio.sleep(0)


def _executor(services: WorkerServices, ledger: RehearsalLedger) -> RunExecutor:
    metrics = Metrics(CollectorRegistry())
    settings = services.settings.model_copy(update={"default_engine": _Ready.name})
    locks = ThreadLocks(services.redis, ttl_s=settings.runs.lease_ttl_s)
    # It sends only while its task runs, and has none.
    publisher = EventPublisher(services.redis, flush_ms=settings.streams.flush_ms, clock=services.clock)
    work = Work(ledger)
    return build_executor(
        settings,
        work,
        services.redis,
        {_Ready.name: _Ready()},
        worker_id=services.worker_id,
        locks=locks,
        keeper=LeaseKeeper(ledger, locks, settings.runs, services.clock, metrics),
        publisher=publisher,
        effects=services.executor.effects,
        clock=services.clock,
        metrics=metrics,
        tracing=services.tracing,
        orchestrated=TreeTransitions(),
        capabilities=services.capabilities,
        holds=Holds(work, publisher, settings.runs, services.clock),
    )


class _Ready:
    """Implements `Engine` without a model."""

    name = "rehearsal"

    async def run(  # noqa: PLR0917 - the contract's signature
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        """Answer at once."""
        listener = callbacks or TurnListener()
        listener.on_thinking()
        listener.on_token("Ready.")
        answer = Message("assistant", (text_block("Ready."),))
        await listener.on_step(StepRecord(index=0, messages=(answer,), final=True))
        return EngineResult(text="Ready.", stop_reason="end_turn", provider=self.name)

    async def close(self) -> None:
        """Release nothing."""
