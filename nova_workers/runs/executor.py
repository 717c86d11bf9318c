"""The worker's side of the run protocol: lock, claim, execute, finish, next."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog
from redis.exceptions import RedisError
from structlog.contextvars import bound_contextvars
from ulid import ULID

from nova_workers.clock import Clock
from nova_workers.config import Settings
from nova_workers.contracts import events as live
from nova_workers.contracts.engine import EngineError, EngineResult
from nova_workers.contracts.ports import Dispatcher
from nova_workers.contracts.runs import Claim, Doorbell, Finish, Finished, PlannedEffect
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import ANSWERABLE
from nova_workers.errors import RunLost, Unavailable
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.runs.finish import finish_run, requeue_run
from nova_workers.ledger.runs.resume import Journal, load_journal
from nova_workers.ledger.waits.suspend import suspend_run
from nova_workers.observability.metrics import Metrics
from nova_workers.observability.redaction import hiding
from nova_workers.observability.redactor import Redactor
from nova_workers.observability.tracing import Tracing
from nova_workers.runs.claiming import claim_run
from nova_workers.runs.fairness import FairLine
from nova_workers.runs.parents import resolve_parents
from nova_workers.runs.persist import persist
from nova_workers.runs.reports import RunReports, span_attributes
from nova_workers.runs.suspend import new_waits, waiting_event
from nova_workers.runs.turns.outcome import Outcome, ended_before_start, failed, not_stored
from nova_workers.runs.turns.permission import tool_policy
from nova_workers.runs.turns.recorder import TurnRecorder
from nova_workers.runs.turns.runner import TurnRunner
from nova_workers.streams.publisher import EventPublisher, RunEvents
from nova_workers.threads.lease import HeldRun, LeaseKeeper
from nova_workers.threads.lock import ThreadLocks

__all__ = ["ExecutorParts", "RunExecutor"]

_log = structlog.get_logger(__name__)

_TRIES = 8
"""Threads that a doorbell tries. All others were quicker at so many: they are at work."""


@dataclass(frozen=True, slots=True)
class ExecutorParts:
    """What an executor works with, built by bootstrap."""

    worker_id: str
    database: Database
    locks: ThreadLocks
    line: FairLine
    keeper: LeaseKeeper
    publisher: EventPublisher
    dispatcher: Dispatcher
    turns: TurnRunner
    settings: Settings
    clock: Clock
    metrics: Metrics
    tracing: Tracing
    effects: tuple[PlannedEffect, ...]
    """Post-run work, in order."""


class RunExecutor:
    """Executes runs. One object serves all slots of a worker process."""

    def __init__(self, parts: ExecutorParts) -> None:
        self._parts = parts
        self._reports = RunReports(parts.metrics, parts.tracing, parts.clock)
        self.draining = False
        """Set when the process is to end: doorbells are passed on to other workers."""
        self.slots = 0
        """How many doorbells the process answers at once; 0 where that is not known."""
        self._answering = 0

    async def answer(self, bell: Doorbell) -> None:
        """Answer a doorbell: execute one run, if any can be.

        On a fleet with room it is the run that is next in the line of the doorbell's thread. With more doorbells than
        free slots, and where that thread needs nobody, the doorbell only says that a slot is free: whoever is most
        entitled gets it. So there are never fewer doorbells than threads that could go on, whoever is served by which.
        A duplicate doorbell finds nothing to claim and ends in milliseconds.

        Raises:
            Unavailable: The database does not answer; the reconciler rings again.
        """
        if self.draining:
            self._parts.dispatcher.ring_runs([bell])
            return
        self._answering += 1
        try:
            tried: set[str] = set()
            if not await self._parts.line.is_crowded(bell.queue, max(self.slots - self._answering, 0)):
                if await self._work_on(bell):
                    return
                tried.add(bell.thread_id)
            await self._serve_line(bell, tried)
        finally:
            self._answering -= 1

    async def _serve_line(self, bell: Doorbell, tried: set[str]) -> None:
        """Execute a run of the thread that is most entitled. Others may be quicker: then that of the next one."""
        for _ in range(_TRIES):
            async with self._parts.line.next(bell, tried) as chosen:
                if chosen.thread_id in tried or await self._work_on(chosen):
                    return
                tried.add(chosen.thread_id)

    async def _work_on(self, bell: Doorbell) -> bool:
        """Execute what is next in a thread's line. False where that was nothing, or another worker has the thread."""
        worked = False
        while not self.draining:
            token = str(ULID())
            if not await self._lock(bell.thread_id, token):
                return worked
            following = capped = None
            try:
                async with self._claimed(bell.thread_id, token) as run:
                    if run is not None:
                        worked = True
                        following = await self._execute(run)
                        capped = run.claim if run.claim.capped else None
                if capped is not None:
                    following = await self._next_under_cap(capped) or following
            finally:
                knocked = await self._unlock(bell.thread_id, token)
            if following is not None:
                # Through the broker and not in this slot: a long line on one thread is no reason for others to wait.
                self._parts.dispatcher.ring_runs([following])
            if following is not None or not knocked:
                return worked
        self._parts.dispatcher.ring_runs([bell])
        return True

    async def _lock(self, thread_id: str, token: str) -> bool:
        try:
            return await self._parts.locks.acquire(thread_id, token)
        except RedisError as error:
            # The claim's own guard decides who owns the run; the lock only spares others the attempt.
            _log.warning("lock.redis_unavailable", thread_id=thread_id, error=str(error))
            return True

    async def _unlock(self, thread_id: str, token: str) -> bool:
        try:
            return await self._parts.locks.release(thread_id, token)
        except RedisError as error:
            _log.warning("lock.not_released", thread_id=thread_id, error=str(error))
            return False

    @asynccontextmanager
    async def _claimed(self, thread_id: str, token: str) -> AsyncGenerator[HeldRun | None]:
        """Claim the run that is next on a thread, and hold it within the block; None where there is none.

        Log lines and spans of the block are the run's, and its redactor is the current one. A run that is lost ends the
        block without an error.
        """
        parts = self._parts
        asked_s = parts.clock.monotonic_s()
        claim = await claim_run(parts.database, thread_id, worker_id=parts.worker_id, runs=parts.settings.runs)
        if claim is None:
            yield None
            return
        run = parts.keeper.keep(claim, token, asked_s=asked_s)
        # The drain may have begun while the claim was on its way.
        run.stop_at_step = self.draining
        with (
            bound_contextvars(
                run_id=claim.run_id,
                thread_id=claim.thread_id,
                tenant_id=claim.tenant_id,
                attempt=claim.attempt,
                fence=claim.fence,
            ),
            parts.tracing.span("nova.run", parent=claim.traceparent, attributes=span_attributes(claim)),
            hiding(Redactor()),
        ):
            self._reports.claimed(claim)
            try:
                yield run
            except RunLost as error:
                _log.warning("run.lost", why=error.message)
            finally:
                parts.keeper.drop(run)

    async def _next_under_cap(self, claim: Claim) -> Doorbell | None:
        """Return whom to ring for now that there is room under a cap: whom it held back has no doorbell any more."""
        try:
            return await self._parts.line.after_cap(claim.tenant_id)
        except Unavailable as error:
            # Nor does it matter if this process dies here: the reconciler rings for whom there is room.
            _log.warning("cap.not_rung", error=error.message)
            return None

    async def _execute(self, run: HeldRun) -> Doorbell | None:
        claim = run.claim
        parts = self._parts
        events = parts.publisher.open(claim.run_id, claim.attempt)
        started_s = parts.clock.monotonic_s()
        journal = Journal((), 1)
        if claim.attempt > 1:
            journal = await persist(parts.database, run.abort, lambda c: load_journal(c, claim.turn_id))
        recorder = TurnRecorder(
            run,
            journal,
            database=parts.database,
            publisher=parts.publisher,
            events=events,
            clock=parts.clock,
            policy=tool_policy(claim, parts.settings.tools, journal.steps),
        )
        outcome = ended_before_start(run, journal)
        if outcome is None:
            outcome = await self._parts.turns.play(run, recorder, events)
        if outcome.status == "requeue":
            return await self._requeue(run, events)
        if outcome.status == "suspend" and outcome.result is not None:
            try:
                return await self._suspend(run, outcome.result, recorder, events)
            except RunLost:
                raise
            except Exception as error:
                # A defect, and one that the next attempt would meet again. The run ends, and says so.
                _log.exception("run.not_suspended")
                why = f"{type(error).__name__} when the run was to wait; see the log."
                defect = EngineError("unknown", why, retryable=False)
                outcome = failed(defect, recorder.journal())
        duration_s = parts.clock.monotonic_s() - started_s
        try:
            return await self._finish(run, outcome, recorder, events, duration_s)
        except RunLost:
            raise
        except Exception as error:
            # A defect of the data: the next attempt would pay for the same and fail here again.
            _log.exception("run.not_stored")
            journal = await persist(parts.database, run.abort, lambda c: load_journal(c, claim.turn_id))
            outcome = not_stored(error, journal, recorder.unwritten or outcome.step)
            return await self._finish(run, outcome, recorder, events, duration_s)

    async def _requeue(self, run: HeldRun, events: RunEvents) -> Doorbell:
        claim = run.claim
        run.ending = True
        await persist(self._parts.database, run.abort, lambda c: requeue_run(c, claim))
        events.emit(live.StreamEnd(run_id=claim.run_id, final=False, status="queued"), urgent=True)
        _log.info("run.handed_back")
        return Doorbell(claim.run_id, claim.thread_id, claim.queue)

    async def _suspend(
        self, run: HeldRun, result: EngineResult, recorder: TurnRecorder, events: RunEvents
    ) -> Doorbell | None:
        """Give the run up until somebody outside has answered its open calls."""
        claim, parts = run.claim, self._parts
        waits = new_waits(result.deferred, now=parts.clock.now())
        facts = recorder.facts
        run.ending = True
        suspended = await persist(
            parts.database, run.abort, lambda c: suspend_run(c, claim, waits, result.deferred_usage, facts)
        )
        # The response that calls them is committed: what was streamed of it counts.
        events.emit(live.Step(index=result.deferred[0].call.step))
        for wait in waits:
            events.emit(waiting_event(wait))
        events.emit(live.StreamEnd(run_id=claim.run_id, final=False, status=suspended.status), urgent=True)
        parts.metrics.runs_suspended.labels(claim.queue).inc()
        parts.dispatcher.ring_runs(suspended.children)
        if any(wait.request.kind in ANSWERABLE for wait in waits):
            parts.dispatcher.ring_deliveries()
        _log.info("run.suspended", waits=[wait.request.kind for wait in waits])
        return Doorbell(claim.run_id, claim.thread_id, claim.queue) if suspended.status == "queued" else None

    async def _finish(
        self, run: HeldRun, outcome: Outcome, recorder: TurnRecorder, events: RunEvents, duration_s: float
    ) -> Doorbell | None:
        parts = self._parts
        recorder.close(outcome.step)
        finish = self._describe(run.claim, outcome, recorder, events, duration_s)
        run.ending = True

        async def write(connection: Connection) -> tuple[Finished, list[Doorbell]]:
            done = await finish_run(connection, run.claim, finish, seq=recorder.seq)
            return done, await resolve_parents(connection, [run.claim.run_id]) if asked_for else []

        asked_for = run.claim.parent_run_id is not None
        finished, parents = await persist(parts.database, run.abort, write, transaction=asked_for)
        parts.dispatcher.ring_runs(parents)
        self._reports.announce(run.claim, finish, finished, events)
        self._reports.finished(run.claim, finish, finished)
        if finished.effects:
            parts.dispatcher.ring_effects()
        return finished.next_run

    def _describe(
        self, claim: Claim, outcome: Outcome, recorder: TurnRecorder, events: RunEvents, duration_s: float
    ) -> Finish:
        assert outcome.status not in ("requeue", "suspend")  # noqa: S101 - narrows the type; the caller has branched on it
        result = outcome.result
        step = outcome.step
        return Finish(
            status=outcome.status,
            stop_reason=outcome.stop_reason,
            text=outcome.text,
            last_step=step,
            usage=TokenUsage() if step is None else step.usage,
            error=outcome.error,
            session_id=None if result is None else result.session_id,
            engine=claim.agent.engine or self._parts.settings.default_engine,
            model=None if result is None else result.model,
            provider=None if result is None else result.provider,
            duration_ms=round(duration_s * 1000),
            final_event_id=str(events.upcoming(2 if outcome.error is not None else 1)),
            first_token_at=recorder.first_token_at,
            effects=self._parts.effects,
            limit=None if result is None else result.limit,
            output=None if result is None else result.output,
            facts=recorder.facts,
        )
