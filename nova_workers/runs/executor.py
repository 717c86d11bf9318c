"""The worker's side of the run protocol: lock, claim, execute, finish, next."""

from __future__ import annotations

from dataclasses import dataclass

import structlog
from redis.exceptions import RedisError
from structlog.contextvars import bound_contextvars
from ulid import ULID

from nova_workers.clock import Clock
from nova_workers.config import Settings
from nova_workers.contracts import events as live
from nova_workers.contracts.ports import Dispatcher
from nova_workers.contracts.runs import Claim, Doorbell, Finish, Finished
from nova_workers.contracts.usage import TokenUsage
from nova_workers.errors import RunLost
from nova_workers.ledger.claim import claim_next
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.finish import finish_run, requeue_run
from nova_workers.ledger.resume import Journal, load_journal
from nova_workers.observability.metrics import Metrics
from nova_workers.observability.tracing import Tracing
from nova_workers.runs.outcome import Outcome, ended_before_start
from nova_workers.runs.permission import tool_policy
from nova_workers.runs.persist import persist
from nova_workers.runs.recorder import TurnRecorder
from nova_workers.runs.turn import TurnRunner
from nova_workers.streams.publisher import EventPublisher, RunEvents
from nova_workers.threads.lease import HeldRun, LeaseKeeper
from nova_workers.threads.lock import ThreadLocks

__all__ = ["ExecutorParts", "RunExecutor"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExecutorParts:
    """What an executor works with, built by bootstrap."""

    worker_id: str
    database: Database
    locks: ThreadLocks
    keeper: LeaseKeeper
    publisher: EventPublisher
    dispatcher: Dispatcher
    turns: TurnRunner
    settings: Settings
    clock: Clock
    metrics: Metrics
    tracing: Tracing
    effects: tuple[str, ...]
    """Kinds of post-run work, in order."""


class RunExecutor:
    """Executes runs. One object serves all slots of a worker process."""

    def __init__(self, parts: ExecutorParts) -> None:
        self._parts = parts
        self.draining = False
        """Set when the process is to end: doorbells are passed on to other workers."""

    async def answer(self, bell: Doorbell) -> None:
        """Answer a doorbell: execute the run that is next in its thread's line, if nobody else does.

        A duplicate doorbell finds nothing to claim and ends in milliseconds.

        Raises:
            Unavailable: The database does not answer; the reconciler rings again.
        """
        while not self.draining:
            token = str(ULID())
            if not await self._lock(bell.thread_id, token):
                return
            try:
                following = await self._claim_and_execute(bell.thread_id, token)
            finally:
                knocked = await self._unlock(bell.thread_id, token)
            if following is not None:
                # Through the broker and not in this slot: a long line on one thread is no reason for others to wait.
                self._parts.dispatcher.ring_runs([following])
                return
            if not knocked:
                return
        self._parts.dispatcher.ring_runs([bell])

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

    async def _claim_and_execute(self, thread_id: str, token: str) -> Doorbell | None:
        """Execute one run and return whom to ring for next."""
        parts = self._parts
        asked_s = parts.clock.monotonic_s()
        async with parts.database.connection() as connection:
            claim = await claim_next(
                connection,
                thread_id,
                worker_id=parts.worker_id,
                lease_ttl_s=parts.settings.runs.lease_ttl_s,
                max_attempts=parts.settings.runs.max_attempts,
            )
        if claim is None:
            return None
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
            parts.tracing.span("nova.run", parent=claim.traceparent, attributes=_attributes(claim)),
        ):
            self._observe_claim(claim)
            try:
                return await self._execute(run)
            except RunLost as error:
                _log.warning("run.lost", why=error.message)
                return None
            finally:
                parts.keeper.drop(run)

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
        duration_s = parts.clock.monotonic_s() - started_s
        return await self._finish(run, outcome, recorder, events, duration_s)

    async def _requeue(self, run: HeldRun, events: RunEvents) -> Doorbell:
        claim = run.claim
        run.ending = True
        await persist(self._parts.database, run.abort, lambda c: requeue_run(c, claim))
        events.emit(live.StreamEnd(run_id=claim.run_id, final=False, status="queued"), urgent=True)
        _log.info("run.handed_back")
        return Doorbell(claim.run_id, claim.thread_id, claim.queue)

    async def _finish(
        self, run: HeldRun, outcome: Outcome, recorder: TurnRecorder, events: RunEvents, duration_s: float
    ) -> Doorbell | None:
        parts = self._parts
        finish = self._describe(run.claim, outcome, recorder, events, duration_s)
        run.ending = True

        async def write(connection: Connection) -> Finished:
            return await finish_run(connection, run.claim, finish, seq=recorder.seq)

        finished = await persist(parts.database, run.abort, write)
        self._announce(run.claim, finish, finished, events)
        self._observe_finish(run.claim, finish, finished)
        if finished.effects:
            parts.dispatcher.ring_effects()
        return finished.next_run

    def _describe(
        self, claim: Claim, outcome: Outcome, recorder: TurnRecorder, events: RunEvents, duration_s: float
    ) -> Finish:
        assert outcome.status != "requeue"  # noqa: S101 - narrows the type; the caller has branched on it
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
        )

    def _announce(self, claim: Claim, finish: Finish, finished: Finished, events: RunEvents) -> None:
        """Tell followers of the end; what they are told is committed."""
        if finish.error is not None:
            events.emit(
                live.StreamError(
                    error=finish.error.message,
                    kind=finish.error.kind,
                    retryable=finish.error.retryable,
                    partial=bool(finish.text),
                )
            )
        usage = finished.usage
        events.emit(
            live.StreamEnd(
                run_id=claim.run_id,
                final=True,
                status=finish.status,
                stop_reason=finish.stop_reason,
                text=finish.text,
                usage=live.Usage(
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                    cache_read_tokens=usage.cache_read_tokens,
                    cache_write_tokens=usage.cache_write_tokens,
                    reasoning_tokens=usage.reasoning_tokens,
                    cost_usd=usage.cost_usd,
                ),
            ),
            urgent=True,
        )

    def _observe_claim(self, claim: Claim) -> None:
        metrics, clock = self._parts.metrics, self._parts.clock
        metrics.runs_claimed.labels(claim.queue, "first" if claim.attempt == 1 else "resumed").inc()
        metrics.claim_latency_s.labels(claim.queue).observe(claim.claim_latency_s)
        if claim.attempt == 1:
            metrics.accept_to_start_s.labels(claim.queue).observe(
                max((clock.now() - claim.created_at).total_seconds(), 0.0)
            )
            self._parts.tracing.record(
                "nova.queue_wait", start=claim.created_at, end=clock.now(), parent=claim.traceparent
            )
        _log.debug("run.claimed", queue=claim.queue, waited_ms=round(claim.claim_latency_s * 1000))

    def _observe_finish(self, claim: Claim, finish: Finish, finished: Finished) -> None:
        metrics = self._parts.metrics
        metrics.runs_finished.labels(finish.status, claim.queue).inc()
        metrics.run_duration_s.labels(finish.status).observe(finish.duration_ms / 1000)
        metrics.record_usage(finish.model, finished.usage, model_calls=finished.model_calls)
        if finish.error is not None and finish.error.kind == "worker_lost":
            metrics.recoveries.labels("failed").inc()
        if finish.first_token_at is not None and claim.attempt == 1:
            metrics.first_token_s.observe(max((finish.first_token_at - claim.created_at).total_seconds(), 0.0))
        _log.info(
            "run.finished",
            status=finish.status,
            stop_reason=finish.stop_reason,
            duration_ms=finish.duration_ms,
            waited_ms=round(claim.claim_latency_s * 1000),
            error=None if finish.error is None else finish.error.kind,
        )


def _attributes(claim: Claim) -> dict[str, str | int]:
    return {
        "nova.run.id": claim.run_id,
        "nova.thread.id": claim.thread_id,
        "nova.agent.id": claim.agent_id,
        "nova.attempt": claim.attempt,
        "nova.queue": claim.queue,
    }
