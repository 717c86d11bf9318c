"""One attempt at a run's turn: engine, options, a conversation that fits the window, and the outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.errors import EngineFailure, NovaError, RunLost, Unstorable
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.redaction import current_redactor, hide
from nova_workers.base.observability.tracing import Tracing
from nova_workers.contracts.content import ContentBlock, Message
from nova_workers.contracts.engine import (
    CompactionTrigger,
    Engine,
    EngineError,
    EngineOptions,
    EngineResult,
    TurnListener,
)
from nova_workers.contracts.refusals import with_notes
from nova_workers.contracts.runs import Claim
from nova_workers.domain.runs.rules.failures import is_outage
from nova_workers.domain.runs.rules.orchestrated import OrchestratedRuns
from nova_workers.domain.runs.rules.persist import persist_work
from nova_workers.domain.runs.rules.turns.allowance import TurnAllowance
from nova_workers.domain.runs.rules.turns.assembly import TurnAssembler
from nova_workers.domain.runs.rules.turns.budgets import within_budgets
from nova_workers.domain.runs.rules.turns.compaction import Compactor
from nova_workers.domain.runs.rules.turns.observer import ObservedTurn
from nova_workers.domain.runs.rules.turns.outcome import Outcome, failed, judge, not_stored, out_of_time
from nova_workers.domain.runs.rules.turns.recorder import TurnRecorder
from nova_workers.domain.runs.rules.turns.redaction import RedactedListener, RedactedSessions, restore_open_calls
from nova_workers.domain.streams.rules.publisher import RunEvents
from nova_workers.domain.threads.rules.lease import HeldRun
from nova_workers.ledger.work import Work

_log = structlog.get_logger(__name__)


class _TimeLeft:
    """The rest of a run's time: of its agent's limit, and of its orchestration's budget."""

    def __init__(self, claim: Claim, clock: Clock) -> None:
        limit_s = claim.agent.timeout_s
        self._clock = clock
        bounds_s = [] if limit_s is None else [limit_s - claim.elapsed_s]
        if claim.place is not None and claim.place.deadline_at is not None:
            bounds_s.append((claim.place.deadline_at - clock.now()).total_seconds())
        self._deadline_s = clock.monotonic_s() + min(bounds_s) if bounds_s else None

    @property
    def is_expired(self) -> bool:
        return self._deadline_s is not None and self._clock.monotonic_s() >= self._deadline_s

    def seconds(self) -> float | None:
        """Return the seconds left; None without a limit.

        Raises:
            EngineFailure: The time limit has expired.
        """
        if self.is_expired:
            raise EngineFailure("The run took longer than its time limit.", kind="timeout", retryable=True)
        return None if self._deadline_s is None else self._deadline_s - self._clock.monotonic_s()


class _Prepared(NamedTuple):
    """The engine's arguments, and the function that redacts its result."""

    content: tuple[ContentBlock, ...]
    options: EngineOptions
    listener: TurnListener
    redact: Callable[[EngineResult], EngineResult]


class TurnRunner:
    """Executes turns with engines. One object serves all worker slots of a process."""

    def __init__(
        self,
        assembler: TurnAssembler,
        compactor: Compactor,
        *,
        orchestrated: OrchestratedRuns,
        work: Work,
        clock: Clock,
        metrics: Metrics,
        tracing: Tracing,
    ) -> None:
        self._orchestrated = orchestrated
        self._work = work
        self._assembler = assembler
        self._compactor = compactor
        self._clock = clock
        self._metrics = metrics
        self._tracing = tracing

    async def play(self, run: HeldRun, recorder: TurnRecorder, events: RunEvents) -> Outcome:
        """Execute the turn of a claimed run and return its outcome. The run's redactor must be current.

        Raises:
            RunLost: Another claim holds the run.

        Whatever else is no error of the tree propagates, as does an outage of a server of ours.
        """
        claim = run.claim
        time_left = _TimeLeft(claim, self._clock)
        try:
            engine = self._assembler.engine(claim)
            claim = await within_budgets(self._work.database, claim, run.abort, recorder.journal(), recorder.budget)
            recorder.allowance = TurnAllowance.of(self._work.database, claim, run.abort)
            if claim.last_call is not None and recorder.budget is not None:
                recorder.budget.begin_last_call(claim.last_call)
            result = await self._run_engine(run, claim, engine, recorder, events, time_left)
        except RunLost:
            raise
        except EngineFailure as error:
            if time_left.is_expired:
                return out_of_time(recorder.journal())
            return failed(replace(EngineError.of(error), message=hide(error.message)), recorder.journal())
        except Unstorable as error:
            _log.exception("run.not_stored")
            return not_stored(error, recorder.journal(), recorder.unwritten)
        except NovaError as error:
            if is_outage(error):
                raise
            return failed(EngineError("unknown", hide(error.message), retryable=True), recorder.journal())
        return judge(run, result, recorder.final_step)

    async def _run_engine(  # noqa: PLR0917 - the parts of one attempt
        self,
        run: HeldRun,
        claim: Claim,
        engine: Engine,
        recorder: TurnRecorder,
        events: RunEvents,
        time_left: _TimeLeft,
    ) -> EngineResult:
        """Run the engine; compact a conversation that is too long before the turn, between two steps, or on overflow.

        An overflow ends the turn if the conversation has not grown since the last compaction.
        """
        model = self._assembler.model(claim)
        recorder.compact_above_tokens = self._compactor.due_above_tokens(engine, model)
        if self._compactor.is_due(claim, engine, model):
            claim = await self._compact_early(run, claim, engine, recorder, events, time_left)
        compacted_before = False
        while True:
            steps_before = recorder.steps_committed
            prepared = await self._prepare(run, claim, recorder, time_left)
            result = await engine.run(
                prepared.content,
                prepared.options,
                claim.agent.trust,
                session_id=claim.session_id,
                callbacks=prepared.listener,
                abort=run.abort,
            )
            recorder.note_result(result)
            result = recorder.within_tree(prepared.redact(result))
            if recorder.goes_on and result.stop_reason == "tool_use":
                if run.abort.aborted:
                    return replace(result, stop_reason="aborted")
                if run.stop_at_step:
                    return result
                claim = await self._between_steps(run, claim, engine, recorder, events, time_left)
                continue
            if result.error is None or result.error.kind != "context_overflow":
                return result
            try:
                shorter = await self._compact(run, claim, engine, recorder, "overflow_recovery", events, time_left)
            except EngineFailure:
                if run.abort.aborted:
                    return replace(result, stop_reason="aborted", error=None)
                raise
            if shorter is claim or (compacted_before and recorder.steps_committed == steps_before):
                return result
            compacted_before, claim = True, shorter

    async def _between_steps(  # noqa: PLR0917 - as above
        self,
        run: HeldRun,
        claim: Claim,
        engine: Engine,
        recorder: TurnRecorder,
        events: RunEvents,
        time_left: _TimeLeft,
    ) -> Claim:
        """Return the claim of a turn that was stopped between two steps, as it goes on: shorter, or for one call."""
        budget = recorder.budget
        if budget is None or not budget.sums_up:
            return await self._compact_early(run, claim, engine, recorder, events, time_left)
        recorder.take_journal(await self._assembler.journal(claim, run.abort))
        budget.begin_last_call(budget.reached)
        return replace(claim, last_call=budget.reached)

    async def _compact_early(  # noqa: PLR0917 - as above
        self,
        run: HeldRun,
        claim: Claim,
        engine: Engine,
        recorder: TurnRecorder,
        events: RunEvents,
        time_left: _TimeLeft,
    ) -> Claim:
        """Return the claim with a shorter conversation, or unchanged if compaction fails: it may still fit."""
        shorter = claim
        try:
            shorter = await self._compact(run, claim, engine, recorder, "context_limit", events, time_left)
        except EngineFailure as error:
            _log.warning("run.not_compacted", error=error.message)
        if shorter is claim and recorder.is_over_window:
            # Do not try again at each further step.
            recorder.compact_above_tokens = None
            recorder.take_journal(await self._assembler.journal(claim, run.abort))
        return shorter

    async def _compact(  # noqa: PLR0917 - as above
        self,
        run: HeldRun,
        claim: Claim,
        engine: Engine,
        recorder: TurnRecorder,
        trigger: CompactionTrigger,
        events: RunEvents,
        time_left: _TimeLeft,
    ) -> Claim:
        """Return the claim with the compacted conversation, or unchanged if nothing can be summarized."""
        model = self._assembler.model(claim)
        turn_id = await self._compactor.compact(
            run,
            claim,
            engine,
            model=model,
            journal=recorder.journal(),
            trigger=trigger,
            timeout_s=time_left.seconds(),
            events=events,
            allowance=recorder.allowance,
        )
        if turn_id is None:
            return claim
        # Continue from committed state, as another worker would.
        recorder.take_journal(await self._assembler.journal(claim, run.abort))
        return replace(claim, parent_turn_id=turn_id, context_tokens=0)

    async def _prepare(self, run: HeldRun, claim: Claim, recorder: TurnRecorder, time_left: _TimeLeft) -> _Prepared:
        redactor = current_redactor()
        assert redactor is not None  # noqa: S101 - see `play`
        listener, redact = recorder, _unchanged
        if await self._assembler.learn_secrets(claim, redactor, run.abort):
            listener = RedactedListener(recorder, redactor)
            redact = listener.redact
        recorder.announce_ended()
        journal = restore_open_calls(recorder.journal(), redactor)
        options = await self._assembler.options(claim, journal, run.abort, timeout_s=time_left.seconds())
        options = replace(options, allowance=recorder.allowance)
        if listener is not recorder and options.sessions is not None:
            options = replace(options, sessions=RedactedSessions(options.sessions, redactor))
        recorder.note_options(options)
        if claim.place is not None:
            await persist_work(
                self._work, run.abort, lambda tx: self._orchestrated.running(tx, claim), transaction=False
            )
        (message,) = with_notes([Message("user", claim.content)], recorder.refused)
        observed = ObservedTurn(listener, tracing=self._tracing, metrics=self._metrics, clock=self._clock)
        return _Prepared(message.content, _without_refused(options, recorder.refused), observed, redact)


def _without_refused(options: EngineOptions, refused: Mapping[str, str]) -> EngineOptions:
    """Return options with notes instead of blocks that the provider refused earlier in this turn."""
    if not refused:
        return options
    journal = tuple(replace(step, messages=with_notes(step.messages, refused)) for step in options.journal)
    return replace(options, history=with_notes(options.history, refused), journal=journal)


def _unchanged(result: EngineResult) -> EngineResult:
    return result
