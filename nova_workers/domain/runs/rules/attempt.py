"""One attempt of a claimed run: plays its turn, then finishes, suspends or requeues the run."""

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
from nova_workers.contracts import events as live
from nova_workers.contracts.engine import EngineError, EngineResult, StepRecord
from nova_workers.contracts.runs import Claim, Doorbell, Finish, Finished, PlannedEffect
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import ANSWERABLE
from nova_workers.domain.runs.rules.failures import defect_of, is_end_of_task, is_outage, place_of
from nova_workers.domain.runs.rules.fairness import FairQueue
from nova_workers.domain.runs.rules.holds import HoldPlan, Holds
from nova_workers.domain.runs.rules.orchestrated import OrchestratedRuns
from nova_workers.domain.runs.rules.parents import resolve_parents
from nova_workers.domain.runs.rules.persist import persist, persist_work
from nova_workers.domain.runs.rules.reports import RunReports
from nova_workers.domain.runs.rules.suspects import SuspectRuns
from nova_workers.domain.runs.rules.suspend import new_waits
from nova_workers.domain.runs.rules.turns.away_servers import AwayServers
from nova_workers.domain.runs.rules.turns.facts import turn_facts
from nova_workers.domain.runs.rules.turns.outcome import Outcome, ended_before_start, failed, not_stored, with_results
from nova_workers.domain.runs.rules.turns.recorder import TurnRecorder
from nova_workers.domain.runs.rules.turns.runner import TurnRunner
from nova_workers.domain.runs.sql.finish import finish_run, requeue_run, requeue_run_once
from nova_workers.domain.runs.sql.holds import hold_claimed
from nova_workers.domain.runs.sql.resume import Journal, find_results, load_journal
from nova_workers.domain.streams.rules.publisher import EventPublisher, RunEvents, TreeSource
from nova_workers.domain.threads.rules.lease import HeldRun, LeaseKeeper
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.domain.tool_policy.rules import CommandPolicy, ModeRules, ToolPolicy
from nova_workers.domain.waits.sql.suspend import Suspended, suspend_run
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


class AttemptRunner:
    """Executes one attempt of a run. One object serves all worker slots of a process."""

    def __init__(self, parts: ExecutorParts, reports: RunReports) -> None:
        self._parts = parts
        self._reports = reports

    async def execute(self, run: HeldRun) -> Doorbell | None:
        """Play the turn of a claimed run and commit its outcome; return the doorbell to ring next, if any.

        However the attempt ends, it ends its claim. An exception that no code expected, from whatever code, requeues
        the run once in its life, and the second one fails it. An outage of a server of ours requeues it as well.

        Raises:
            RunLost: Another worker may have claimed the run.
        """
        claim, parts = run.claim, self._parts
        place = claim.place
        tree = None if place is None else TreeSource(place.orchestration_id, place.agent_id)
        events = parts.publisher.open(claim.run_id, claim.attempt, tree)
        started_s = parts.clock.monotonic_s()
        recorder: TurnRecorder | None = None
        try:
            self._reports.claimed(claim)
            journal = Journal((), 1)
            if claim.attempt > 1:
                journal = await self._committed(run)
            recorder = self._recorder(run, journal, events)
            recorder.begin()
            await _events_written()
            outcome = ended_before_start(run, journal)
            if outcome is None:
                if place is not None:
                    await persist_work(
                        parts.work, run.abort, lambda tx: parts.orchestrated.starting(tx, claim), transaction=False
                    )
                outcome = await parts.turns.play(run, recorder, events)
            return await self._commit(run, outcome, recorder, events, started_s)
        except RunLost:
            raise
        except BaseException as error:
            if is_end_of_task(error):
                raise
            if is_outage(error):
                return await self._requeue_after_outage(run, error, events)
            return await self._end_after_defect(run, error, recorder, events, started_s)

    def _recorder(self, run: HeldRun, journal: Journal, events: RunEvents) -> TurnRecorder:
        parts = self._parts
        return TurnRecorder(
            run,
            journal,
            database=parts.work.database,
            publisher=parts.publisher,
            events=events,
            clock=parts.clock,
            away_servers=parts.away_servers,
            policy=_tool_policy(run.claim, parts.settings.tools, journal.steps),
            on_answer=lambda: parts.holds.answered(run.claim),
        )

    async def _committed(self, run: HeldRun) -> Journal:
        return await persist(self._parts.work.database, run.abort, lambda c: load_journal(c, run.claim.turn_id))

    async def _commit(
        self, run: HeldRun, outcome: Outcome, recorder: TurnRecorder, events: RunEvents, started_s: float
    ) -> Doorbell | None:
        if outcome.status == "requeue":
            return await self._requeue(run, events)
        if outcome.status == "failed" and outcome.error is not None:
            plan = self._parts.holds.plan(run.claim, outcome.error, progressed=recorder.has_answered)
            if isinstance(plan, HoldPlan):
                return await self._hold(run, plan, outcome.step, recorder, events)
            outcome = replace(outcome, error=plan)
        if run.claim.held is not None and outcome.status == "succeeded":
            # Not every engine reports when its model begins to answer.
            self._parts.holds.answered(run.claim)
        duration_s = self._parts.clock.monotonic_s() - started_s
        try:
            if outcome.status == "suspend" and outcome.result is not None:
                return await self._suspend(run, outcome.result, recorder, events)
            return await self._finish(run, outcome, recorder, events, duration_s)
        except Unstorable as error:
            # Another attempt would pay for the same turn and fail here again.
            _log.exception("run.not_stored")
            outcome = not_stored(error, await self._committed(run), recorder.unwritten or outcome.step)
            return await self._finish(run, outcome, recorder, events, duration_s)

    async def _requeue(self, run: HeldRun, events: RunEvents) -> Doorbell:
        claim = run.claim
        run.ending = True
        await persist(self._parts.work.database, run.abort, lambda c: requeue_run(c, claim))
        return _announce_requeued(claim, events)

    async def _requeue_after_outage(self, run: HeldRun, error: BaseException, events: RunEvents) -> Doorbell:
        _log.warning("run.outage", error=str(error))
        bell = await self._requeue(run, events)
        # In this slot, so that the runs of a server that is away do not keep the fleet busy.
        await asyncio.sleep(_AFTER_OUTAGE_S)
        return bell

    async def _end_after_defect(
        self,
        run: HeldRun,
        error: BaseException,
        recorder: TurnRecorder | None,
        events: RunEvents,
        started_s: float,
    ) -> Doorbell | None:
        """Requeue the run after an unexpected exception, or fail it if that was its second."""
        claim, database = run.claim, self._parts.work.database
        _log.error("run.engine_error", place=place_of(error), exc_info=error)
        if await persist(database, run.abort, lambda c: requeue_run_once(c, claim)):
            return _announce_requeued(claim, events)
        defect = defect_of(error)
        duration_s = self._parts.clock.monotonic_s() - started_s
        try:
            journal = await self._committed(run)
            if recorder is None:
                recorder = self._recorder(run, journal, events)
            recorder.take_journal(journal)
            return await self._finish(run, failed(defect, journal), recorder, events, duration_s)
        except (RunLost, Unavailable):
            raise
        except Exception:
            # What belongs to the end beside the run's own rows fails too: the reconciler does it later.
            _log.exception("run.ended_alone")
            return await self._finish_alone(run, defect, events, duration_s)

    async def _finish_alone(
        self, run: HeldRun, error: EngineError, events: RunEvents, duration_s: float
    ) -> Doorbell | None:
        claim = run.claim
        finish = self._describe(claim, Outcome("failed", "error", error=error), None, events, duration_s)
        # The last step has no messages, so its position does not matter.
        finished = await persist(self._parts.work.database, run.abort, lambda c: finish_run(c, claim, finish, seq=0))
        with _after_commit():
            self._reports.announce(claim, finish, finished, events)
            self._reports.finished(claim, finish, finished)
        return finished.next_run

    async def _hold(
        self, run: HeldRun, plan: HoldPlan, step: StepRecord | None, recorder: TurnRecorder, events: RunEvents
    ) -> Doorbell | None:
        """Requeue the run until its model provider can be used again. Committed steps are kept."""
        claim, parts = run.claim, self._parts
        if step is not None and step.tool_calls:
            # Its calls were made. The text of a response that broke off comes again.
            await recorder.on_step(replace(step, final=False))
        run.ending = True
        held = await persist(
            parts.work.database,
            run.abort,
            lambda c: hold_claimed(c, claim, plan.detail, pause_s=plan.pause_s, afresh=plan.afresh),
        )
        if not held.is_held:
            return _announce_requeued(claim, events)
        with _after_commit():
            events.emit(live.ProviderUnavailable.of(plan.detail, held.until, held=True))
            events.emit(live.StreamEnd(run_id=claim.run_id, final=False, status="queued"), urgent=True)
            await _events_written()
            parts.metrics.runs_held.labels(claim.queue, plan.detail.outage).inc()
            _log.info("run.held", reason=plan.detail.outage, provider=plan.detail.provider, pause_s=plan.pause_s)
            await parts.holds.learn(claim, plan)
        return None

    async def _suspend(
        self, run: HeldRun, result: EngineResult, recorder: TurnRecorder, events: RunEvents
    ) -> Doorbell | None:
        """Release the run until its open calls have been answered from outside."""
        claim, parts = run.claim, self._parts
        waits = new_waits(result.deferred, now=parts.clock.now())
        facts, clears = recorder.facts, recorder.clears(result.deferred[0].call.step)
        run.ending = True

        # Masters run already, so one may have ended before anything waited for it.
        masters = [wait.child_run_id for wait in waits if wait.child_run_id is not None]

        async def write(tx: UnitOfWork) -> Suspended:
            tree = await parts.orchestrated.lock(tx.connection, claim) if claim.place is not None else None
            suspended = await suspend_run(tx.connection, claim, waits, result.deferred_usage, facts, clears=clears)
            tx.publish(lambda: publish(suspended))
            if tree is not None:
                await parts.orchestrated.suspended(tx, tree, claim, result.usage.reasoning_ms)
            tx.ring(suspended.children)
            if masters:
                tx.ring(await resolve_parents(tx.connection, masters))
            if any(wait.request.kind in ANSWERABLE for wait in waits):
                tx.ring_deliveries()
            return suspended

        def publish(suspended: Suspended) -> None:
            if suspended.status == "waiting":
                # The response with these calls is committed, so what was streamed of it is valid.
                events.emit(live.Step(index=result.deferred[0].call.step))
                for wait in waits:
                    events.emit(live.Waiting.of(wait.tool_call_id, wait.request))
            events.emit(live.StreamEnd(run_id=claim.run_id, final=False, status=suspended.status), urgent=True)

        in_transaction = claim.place is not None or bool(masters)
        suspended = await persist_work(parts.work, run.abort, write, transaction=in_transaction)
        with _after_commit():
            parts.metrics.runs_suspended.labels(claim.queue).inc()
            _log.info("run.suspended", waits=[wait.request.kind for wait in waits])
        return Doorbell(claim.run_id, claim.thread_id, claim.queue) if suspended.status == "queued" else None

    async def _finish(
        self, run: HeldRun, outcome: Outcome, recorder: TurnRecorder, events: RunEvents, duration_s: float
    ) -> Doorbell | None:
        parts = self._parts
        outcome = await self._with_recorded_results(run, outcome)
        recorder.close(outcome.step)
        finish = self._describe(run.claim, outcome, recorder, events, duration_s)
        run.ending = True

        async def write(tx: UnitOfWork) -> Finished:
            tree = await parts.orchestrated.lock(tx.connection, claim) if orchestrated else None
            done = await finish_run(tx.connection, claim, finish, seq=recorder.seq)
            # So it comes before the end of an orchestration, which is the last event of its stream.
            tx.publish(lambda: self._reports.announce(claim, finish, done, events))
            if tree is not None:
                await parts.orchestrated.finished(tx, tree, claim, finish)
            if may_be_awaited:
                # After the end of the agent, whose summary is the answer to a wait on its orchestration.
                tx.ring(await resolve_parents(tx.connection, [claim.run_id]))
            if done.effects:
                tx.ring_effects()
            return done

        claim = run.claim
        orchestrated = claim.place is not None
        may_be_awaited = claim.parent_run_id is not None or (claim.place is not None and claim.place.role == "MASTER")
        finished = await persist_work(parts.work, run.abort, write, transaction=orchestrated or may_be_awaited)
        with _after_commit():
            self._reports.finished(claim, finish, finished)
        return finished.next_run

    async def _with_recorded_results(self, run: HeldRun, outcome: Outcome) -> Outcome:
        """Return the outcome with the results that calls of its step had recorded when they were interrupted."""
        claim, step = run.claim, outcome.step
        interrupted = [call.id for call in step.tool_calls if call.status == "interrupted"] if step is not None else []
        if step is None or not interrupted:
            return outcome
        recorded = await persist(
            self._parts.work.database, run.abort, lambda c: find_results(c, claim.run_id, claim.fence, interrupted)
        )
        return replace(outcome, step=with_results(step, recorded))

    def _describe(
        self, claim: Claim, outcome: Outcome, recorder: TurnRecorder | None, events: RunEvents, duration_s: float
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
            first_token_at=None if recorder is None else recorder.first_token_at,
            effects=self._parts.effects,
            limit=None if result is None else result.limit,
            output=None if result is None else result.output,
            facts=turn_facts(claim) if recorder is None else recorder.facts,
        )


def _announce_requeued(claim: Claim, events: RunEvents) -> Doorbell:
    with _after_commit():
        events.emit(live.StreamEnd(run_id=claim.run_id, final=False, status="queued"), urgent=True)
        _log.info("run.requeued")
    return Doorbell(claim.run_id, claim.thread_id, claim.queue)


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


def _tool_policy(claim: Claim, settings: ToolSettings, journal: Iterable[StepRecord]) -> ToolPolicy:
    """Return the policy from the agent's permissions, the operator's rules and the run's earlier calls."""
    permissions, asked, mode = claim.agent.permissions, settings.ask_commands, None
    if claim.place is not None:
        allowed = (*permissions.allow_commands, *claim.place.whitelist)
        permissions = permissions.model_copy(update={"allow_commands": allowed})
        asked = (*asked, *claim.place.blacklist)
        mode = ModeRules(claim.place.permission_mode)
    commands = CommandPolicy(permissions, deny=settings.deny_commands, ask=asked)
    policy = ToolPolicy(claim.agent.trust, commands, native_tools_only=claim.agent.native_tools, mode=mode)
    policy.remember(call for step in journal for call in step.tool_calls)
    return policy
