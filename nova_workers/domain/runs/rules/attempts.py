"""Executes attempts at claimed runs: plays the turn, then finishes, suspends, holds or requeues the run."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings, ToolSettings
from nova_workers.base.errors import RunLost, Unavailable, Unstorable
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing
from nova_workers.contracts.engine import EngineError, EngineResult, StepRecord
from nova_workers.contracts.runs import Claim, Doorbell, Finish, Finished, PlannedEffect
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import ANSWERABLE
from nova_workers.domain.capabilities.rules import CapabilityRegistry
from nova_workers.domain.evaluations.rules.replay import Replay
from nova_workers.domain.evaluations.sql import find_replay
from nova_workers.domain.runs.rules.failures import defect_of, is_end_of_task, is_outage, place_of
from nova_workers.domain.runs.rules.fairness import FairQueue
from nova_workers.domain.runs.rules.holds import HoldPlan, Holds
from nova_workers.domain.runs.rules.installs import Installs
from nova_workers.domain.runs.rules.orchestrated import OrchestratedRuns
from nova_workers.domain.runs.rules.parents import resolve_parents
from nova_workers.domain.runs.rules.suspects import SuspectRuns
from nova_workers.domain.runs.rules.suspend import new_waits
from nova_workers.domain.runs.rules.turns.attempt import Attempt, TimeLeft
from nova_workers.domain.runs.rules.turns.away_servers import AwayServers
from nova_workers.domain.runs.rules.turns.journal import TurnJournal, turn_facts
from nova_workers.domain.runs.rules.turns.live import LiveEvents
from nova_workers.domain.runs.rules.turns.outcome import Outcome, ended_before_start, failed, not_stored, with_results
from nova_workers.domain.runs.rules.turns.requests import WrittenParts
from nova_workers.domain.runs.rules.turns.runner import TurnRunner
from nova_workers.domain.runs.sql.finish import finish_run, requeue_run, requeue_run_once
from nova_workers.domain.runs.sql.holds import hold_claimed
from nova_workers.domain.runs.sql.resume import Journal, find_results, load_journal
from nova_workers.domain.streams.rules.publisher import EventPublisher, TreeSource
from nova_workers.domain.threads.rules.lease import HeldRun, LeaseKeeper
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.domain.tool_policy.rules import CommandPolicy, ModeRules, ToolPolicy
from nova_workers.domain.waits.sql.suspend import Suspended, suspend_run
from nova_workers.ledger.persist import persist, persist_work
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)

_AFTER_OUTAGE_S = 1.0


@dataclass(frozen=True, slots=True)
class ExecutorParts:
    """The collaborators of an executor, built by bootstrap."""

    worker_id: str
    work: Work
    locks: ThreadLocks
    fair_queue: FairQueue
    keeper: LeaseKeeper
    publisher: EventPublisher
    turns: TurnRunner
    capabilities: CapabilityRegistry
    """What agents may be granted, for the tools that need approval."""
    away_servers: AwayServers
    settings: Settings
    clock: Clock
    metrics: Metrics
    tracing: Tracing
    effects: tuple[PlannedEffect, ...]
    """Post-run work, in order."""
    orchestrated: OrchestratedRuns
    suspects: SuspectRuns | None
    """Executes suspect runs; None where this process may do so."""
    holds: Holds
    installs: Installs


class AttemptRunner:
    """Executes one attempt of a run. One object serves all worker slots of a process."""

    def __init__(self, parts: ExecutorParts) -> None:
        self._parts = parts
        self._reports = RunReports(parts.metrics, parts.tracing, parts.clock)
        self._written_parts = WrittenParts(parts.clock)

    async def execute(self, run: HeldRun) -> Doorbell | None:
        """Play the turn of a claimed run and commit its outcome; return the doorbell to ring next, if any.

        However the attempt ends, once its values are made, it ends its claim. An exception that no code expected, from
        whatever code, requeues the run once in its life, and the second one fails it. An outage of a server of ours
        requeues it as well.

        Raises:
            RunLost: Another worker may have claimed the run.
        """
        attempt = self._begin(run)
        try:
            outcome = await self._start(attempt)
            if outcome is None:
                outcome = await self._parts.turns.play(attempt)
            return await self._commit(attempt, outcome)
        except RunLost:
            raise
        except BaseException as error:
            if is_end_of_task(error):
                raise
            if is_outage(error):
                return await self._requeue_after_outage(attempt, error)
            return await self._end_after_defect(attempt, error)

    def _begin(self, run: HeldRun) -> Attempt:
        parts, claim = self._parts, run.claim
        tree = None if claim.place is None else TreeSource(claim.place.orchestration_id, claim.place.agent_id)
        events = LiveEvents(
            parts.publisher.open(claim.run_id, claim.attempt, tree),
            publisher=parts.publisher,
            clock=parts.clock,
            on_answer=lambda: parts.holds.answered(run.claim),
        )
        journal = TurnJournal(
            run,
            events,
            database=parts.work.database,
            clock=parts.clock,
            away_servers=parts.away_servers,
            written_parts=self._written_parts,
        )
        return Attempt(run, journal, events, TimeLeft(claim, parts.clock), started_s=parts.clock.monotonic_s())

    async def _start(self, attempt: Attempt) -> Outcome | None:
        """Continue from earlier attempts, and announce this one. Return the outcome if there is nothing to play."""
        parts, run, journal, events = self._parts, attempt.run, attempt.journal, attempt.events
        self._reports.claimed(run.claim)
        if run.claim.attempt > 1:
            journal.resume(await self._committed(attempt))
        journal.policy = _tool_policy(
            run.claim,
            parts.settings.tools,
            journal.committed.steps,
            approved_by_people=parts.capabilities.needing_approval(run.claim.agent),
        )
        if run.claim.options.trial:
            journal.replay = await self._replay(attempt)
        events.start(run.claim)
        if journal.open_step is not None:
            # Its response is committed, and its calls are continued.
            events.correct_text(journal.open_step)
        await _events_written()
        outcome = ended_before_start(run, journal.committed)
        if outcome is None and run.claim.place is not None:
            await persist_work(
                parts.work, run.abort, lambda tx: parts.orchestrated.starting(tx, run.claim), transaction=False
            )
        return outcome

    async def _replay(self, attempt: Attempt) -> Replay:
        """Return the replay of a run of an evaluation, which goes on after the calls of earlier attempts."""
        claim = attempt.claim
        source = await persist(
            self._parts.work.database, attempt.abort, lambda c: find_replay(c, claim.tenant_id, claim.run_id)
        )
        replay = Replay(source)
        replay.remember(call for step in attempt.journal.committed.steps for call in step.tool_calls)
        return replay

    async def _committed(self, attempt: Attempt) -> Journal:
        turn_id = attempt.claim.turn_id
        return await persist(self._parts.work.database, attempt.abort, lambda c: load_journal(c, turn_id))

    async def _commit(self, attempt: Attempt, outcome: Outcome) -> Doorbell | None:
        claim, holds = attempt.claim, self._parts.holds
        if outcome.status == "requeue":
            return await self._requeue(attempt)
        if outcome.status == "failed" and outcome.error is not None:
            plan = holds.plan(claim, outcome.error, progressed=attempt.journal.has_answered)
            if isinstance(plan, HoldPlan):
                return await self._hold(attempt, plan, outcome.step)
            outcome = replace(outcome, error=plan)
        if claim.held is not None and outcome.status == "succeeded":
            # Not every engine reports when its model begins to answer.
            holds.answered(claim)
        # The time of the turn, without that of its commit.
        duration_s = self._parts.clock.monotonic_s() - attempt.started_s
        try:
            if outcome.status == "suspend" and outcome.result is not None:
                return await self._suspend(attempt, outcome.result)
            return await self._finish(attempt, outcome, duration_s)
        except Unstorable as error:
            # Another attempt would pay for the same turn and fail here again.
            _log.exception("run.not_stored")
            committed = await self._committed(attempt)
            outcome = not_stored(error, committed, attempt.journal.unwritten or outcome.step)
            return await self._finish(attempt, outcome, duration_s)

    async def _requeue(self, attempt: Attempt) -> Doorbell:
        attempt.run.ending = True
        await persist(self._parts.work.database, attempt.abort, lambda c: requeue_run(c, attempt.claim))
        return _announce_requeued(attempt)

    async def _requeue_after_outage(self, attempt: Attempt, error: BaseException) -> Doorbell:
        _log.warning("run.outage", error=str(error))
        bell = await self._requeue(attempt)
        # In this slot, so that the runs of a server that is away do not keep the fleet busy.
        await asyncio.sleep(_AFTER_OUTAGE_S)
        return bell

    async def _end_after_defect(self, attempt: Attempt, error: BaseException) -> Doorbell | None:
        """Requeue the run after an unexpected exception, or fail it if that was its second."""
        _log.error("run.engine_error", place=place_of(error), exc_info=error)
        if await persist(self._parts.work.database, attempt.abort, lambda c: requeue_run_once(c, attempt.claim)):
            return _announce_requeued(attempt)
        defect = defect_of(error)
        duration_s = self._parts.clock.monotonic_s() - attempt.started_s
        try:
            committed = await self._committed(attempt)
            if attempt.journal.is_resumed:
                attempt.journal.reload(committed)
            else:
                attempt.journal.resume(committed)
            return await self._finish(attempt, failed(defect, committed), duration_s)
        except (RunLost, Unavailable):
            raise
        except Exception:
            # What belongs to the end beside the run's own rows fails too: the reconciler does it later.
            _log.exception("run.ended_alone")
            return await self._finish_alone(attempt, defect, duration_s)

    async def _finish_alone(self, attempt: Attempt, error: EngineError, duration_s: float) -> Doorbell | None:
        finish = self._describe(attempt, Outcome("failed", "error", error=error), duration_s)
        finish = replace(finish, first_token_at=None, facts=turn_facts(attempt.claim))
        # The last step has no messages, so its position does not matter.
        finished = await persist(
            self._parts.work.database, attempt.abort, lambda c: finish_run(c, attempt.claim, finish, seq=0)
        )
        with _after_commit():
            attempt.events.finished(attempt.claim, finish, finished)
            self._reports.finished(attempt.claim, finish, finished)
        return finished.next_run

    async def _hold(self, attempt: Attempt, plan: HoldPlan, step: StepRecord | None) -> Doorbell | None:
        """Requeue the run until its model provider can be used again. Committed steps are kept."""
        parts = self._parts
        if step is not None and step.tool_calls:
            # Its calls were made. The text of a response that broke off comes again.
            await attempt.journal.on_step(replace(step, final=False))
        attempt.run.ending = True
        held = await persist(
            parts.work.database,
            attempt.abort,
            lambda c: hold_claimed(c, attempt.claim, plan.detail, pause_s=plan.pause_s, afresh=plan.afresh),
        )
        if not held.is_held:
            return _announce_requeued(attempt)
        with _after_commit():
            attempt.events.held(plan.detail, held.until)
            await _events_written()
            parts.metrics.runs_held.labels(attempt.claim.queue, plan.detail.outage).inc()
            _log.info("run.held", reason=plan.detail.outage, provider=plan.detail.provider, pause_s=plan.pause_s)
            await parts.holds.learn(attempt.claim, plan)
        return None

    async def _suspend(self, attempt: Attempt, result: EngineResult) -> Doorbell | None:
        """Release the run until its open calls have been answered from outside."""
        claim, parts, journal = attempt.claim, self._parts, attempt.journal
        waits, step = new_waits(result.deferred, now=parts.clock.now()), result.deferred[0].call.step
        facts, clears, spent = journal.facts, journal.clears(step), journal.spent_with(result.deferred_usage)
        attempt.run.ending = True

        # Masters run already, so one may have ended before anything waited for it.
        masters = [wait.child_run_id for wait in waits if wait.child_run_id is not None]

        async def write(tx: UnitOfWork) -> Suspended:
            tree = await parts.orchestrated.lock(tx.connection, claim) if claim.place is not None else None
            suspended = await suspend_run(tx.connection, claim, waits, result.deferred_usage, facts, clears=clears)
            tx.publish(lambda: attempt.events.suspended(suspended.status, step, spent, waits))
            if tree is not None:
                await parts.orchestrated.suspended(tx, tree, claim, result.usage.reasoning_ms)
            tx.ring(suspended.children)
            if masters:
                tx.ring(await resolve_parents(tx.connection, masters))
            if any(wait.request.kind in ANSWERABLE for wait in waits):
                tx.ring_deliveries()
            return suspended

        in_transaction = claim.place is not None or bool(masters)
        suspended = await persist_work(parts.work, attempt.abort, write, transaction=in_transaction)
        with _after_commit():
            parts.metrics.runs_suspended.labels(claim.queue).inc()
            _log.info("run.suspended", waits=[wait.request.kind for wait in waits])
        return Doorbell(claim.run_id, claim.thread_id, claim.queue) if suspended.status == "queued" else None

    async def _finish(self, attempt: Attempt, outcome: Outcome, duration_s: float) -> Doorbell | None:
        parts, claim, journal, events = self._parts, attempt.claim, attempt.journal, attempt.events
        outcome = await self._with_recorded_results(attempt, outcome)
        events.correct_text(outcome.step)
        if outcome.step is not None:
            events.end_calls(outcome.step.tool_calls)
        finish, asked = self._describe(attempt, outcome, duration_s), journal.calls.at_end(outcome.step)
        attempt.run.ending = True

        async def write(tx: UnitOfWork) -> Finished:
            tree = await parts.orchestrated.lock(tx.connection, claim) if orchestrated else None
            done = await finish_run(tx.connection, claim, finish, seq=journal.seq, asked=asked)
            # So it comes before the end of an orchestration, which is the last event of its stream.
            tx.publish(lambda: events.finished(claim, finish, done))
            if tree is not None:
                await parts.orchestrated.finished(tx, tree, claim, finish)
            if may_be_awaited:
                # After the end of the agent, whose summary is the answer to a wait on its orchestration.
                tx.ring(await resolve_parents(tx.connection, [claim.run_id]))
            if done.effects:
                tx.ring_effects()
            return done

        orchestrated = claim.place is not None
        may_be_awaited = claim.parent_run_id is not None or (claim.place is not None and claim.place.role == "MASTER")
        finished = await persist_work(parts.work, attempt.abort, write, transaction=orchestrated or may_be_awaited)
        journal.calls.note_commit(asked)
        with _after_commit():
            self._reports.finished(claim, finish, finished)
        return finished.next_run

    async def _with_recorded_results(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """Return the outcome with the results that calls of its step had recorded when they were interrupted."""
        claim, step = attempt.claim, outcome.step
        interrupted = [call.id for call in step.tool_calls if call.status == "interrupted"] if step is not None else []
        if step is None or not interrupted:
            return outcome
        recorded = await persist(
            self._parts.work.database, attempt.abort, lambda c: find_results(c, claim.run_id, claim.fence, interrupted)
        )
        return replace(outcome, step=with_results(step, recorded))

    def _describe(self, attempt: Attempt, outcome: Outcome, duration_s: float) -> Finish:
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
            engine=attempt.claim.agent.engine or self._parts.settings.default_engine,
            model=None if result is None else result.model,
            provider=None if result is None else result.provider,
            duration_ms=round(duration_s * 1000),
            final_event_id=str(attempt.events.stream.upcoming(2 if outcome.error is not None else 1)),
            first_token_at=attempt.events.first_token_at,
            effects=tuple(
                effect
                for effect in self._parts.effects
                if effect.follows(attempt.claim.tenant_id, attempt.claim.agent_id)
            ),
            limit=None if result is None else result.limit,
            output=None if result is None else result.output,
            facts=attempt.journal.facts,
        )


class RunReports:
    """Measures and logs claims and ends of runs."""

    def __init__(self, metrics: Metrics, tracing: Tracing, clock: Clock) -> None:
        self._metrics = metrics
        self._tracing = tracing
        self._clock = clock

    def claimed(self, claim: Claim) -> None:
        """Measure and log that a run was claimed."""
        metrics, clock = self._metrics, self._clock
        metrics.runs_claimed.labels(claim.queue, "first" if claim.attempt == 1 else "resumed").inc()
        metrics.claim_latency_s.labels(claim.queue).observe(claim.claim_latency_s)
        if claim.attempt == 1:
            metrics.accept_to_start_s.labels(claim.queue).observe(
                max((clock.now() - claim.created_at).total_seconds(), 0.0)
            )
            self._tracing.record("nova.queue_wait", start=claim.created_at, end=clock.now(), parent=claim.traceparent)
        _log.debug("run.claimed", queue=claim.queue, waited_ms=round(claim.claim_latency_s * 1000))

    def finished(self, claim: Claim, finish: Finish, finished: Finished) -> None:
        """Measure and log that a run has ended."""
        metrics = self._metrics
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


def _announce_requeued(attempt: Attempt) -> Doorbell:
    with _after_commit():
        attempt.events.requeued()
        _log.info("run.requeued")
    return Doorbell(attempt.claim.run_id, attempt.claim.thread_id, attempt.claim.queue)


@contextmanager
def _after_commit() -> Generator[None]:
    """Log what fails within the block: what is committed stays, and readers of the ledger find it there."""
    try:
        yield
    except Exception:
        _log.exception("run.not_announced")


async def _events_written() -> None:
    """Let the publisher write what was emitted, before this task goes on to compute: followers wait for it."""
    await asyncio.sleep(0)


def _tool_policy(
    claim: Claim, settings: ToolSettings, journal: Iterable[StepRecord], *, approved_by_people: frozenset[str]
) -> ToolPolicy:
    """Return the policy from the agent's permissions, the operator's rules and the run's earlier calls."""
    permissions, asked, mode = claim.agent.permissions, settings.ask_commands, None
    if claim.place is not None:
        allowed = (*permissions.allow_commands, *claim.place.whitelist)
        permissions = permissions.model_copy(update={"allow_commands": allowed})
        asked = (*asked, *claim.place.blacklist)
        mode = ModeRules(claim.place.permission_mode)
    commands = CommandPolicy(permissions, deny=settings.deny_commands, ask=asked)
    policy = ToolPolicy(
        claim.agent.trust,
        commands,
        native_tools_only=claim.agent.native_tools,
        mode=mode,
        approved_by_people=approved_by_people,
    )
    policy.remember(call for step in journal for call in step.tool_calls)
    return policy
