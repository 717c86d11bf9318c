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
from nova_workers.base.observability.tracing import Tracing, annotate, usage_attributes
from nova_workers.contracts.content import ContentBlock, Message
from nova_workers.contracts.engine import (
    CompactionTrigger,
    Engine,
    EngineError,
    EngineOptions,
    EngineResult,
    ForwardingListener,
    StepRecord,
    StepVerdict,
    ToolCall,
    TurnListener,
)
from nova_workers.contracts.refusals import with_notes
from nova_workers.domain.runs.rules.failures import is_outage
from nova_workers.domain.runs.rules.orchestrated import OrchestratedRuns
from nova_workers.domain.runs.rules.turns.assembly import TurnAssembler
from nova_workers.domain.runs.rules.turns.attempt import Attempt
from nova_workers.domain.runs.rules.turns.budgets import TurnAllowance, within_budgets
from nova_workers.domain.runs.rules.turns.compaction import Compactor
from nova_workers.domain.runs.rules.turns.outcome import Outcome, failed, judge, not_stored, out_of_time
from nova_workers.domain.runs.rules.turns.redaction import RedactedListener, RedactedSessions, restore_open_calls
from nova_workers.domain.runs.sql.resume import load_journal
from nova_workers.ledger.persist import persist, persist_work
from nova_workers.ledger.work import Work

_log = structlog.get_logger(__name__)


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

    async def play(self, attempt: Attempt) -> Outcome:
        """Execute the turn of a claimed run and return its outcome. The run's redactor must be current.

        Raises:
            RunLost: Another claim holds the run.

        Whatever else is no error of the tree propagates, as does an outage of a server of ours.
        """
        run, journal, database = attempt.run, attempt.journal, self._work.database
        try:
            engine = self._assembler.engine(attempt.claim)
            attempt.rest = await within_budgets(database, run, journal.committed, journal.budget)
            journal.allowance = TurnAllowance.of(database, run)
            if attempt.rest.last_call is not None and journal.budget is not None:
                journal.budget.begin_last_call(attempt.rest.last_call)
            result = await self._run_engine(attempt, engine)
            _describe(result, self._assembler.model(attempt.claim))
        except RunLost:
            raise
        except EngineFailure as error:
            if attempt.time_left.is_expired:
                return out_of_time(journal.committed)
            return failed(replace(EngineError.of(error), message=hide(error.message)), journal.committed)
        except Unstorable as error:
            _log.exception("run.not_stored")
            return not_stored(error, journal.committed, journal.unwritten)
        except NovaError as error:
            if is_outage(error):
                raise
            return failed(EngineError("unknown", hide(error.message), retryable=True), journal.committed)
        return judge(run, result, journal.final_step)

    async def _run_engine(self, attempt: Attempt, engine: Engine) -> EngineResult:
        """Run the engine; compact a conversation that is too long before the turn, between two steps, or on overflow.

        An overflow ends the turn if the conversation has not grown since the last compaction.
        """
        run, journal = attempt.run, attempt.journal
        model = self._assembler.model(attempt.claim)
        journal.compact_above_tokens = self._compactor.due_above_tokens(engine, model)
        if self._compactor.is_due(attempt.claim, engine, model):
            await self._compact_early(attempt, engine)
        compacted_before = False
        while True:
            steps_before = journal.steps_committed
            prepared = await self._prepare(attempt)
            result = await engine.run(
                prepared.content,
                prepared.options,
                attempt.claim.agent.trust,
                session_id=attempt.claim.session_id,
                callbacks=prepared.listener,
                abort=run.abort,
            )
            journal.note_result(result)
            result = journal.within_tree(prepared.redact(result))
            if journal.goes_on and result.stop_reason == "tool_use":
                if run.abort.aborted:
                    return replace(result, stop_reason="aborted")
                if run.stop_at_step:
                    return result
                await self._go_on(attempt, engine)
                continue
            if result.error is None or result.error.kind != "context_overflow":
                return result
            try:
                is_shorter = await self._compact(attempt, engine, "overflow_recovery")
            except EngineFailure:
                if run.abort.aborted:
                    return replace(result, stop_reason="aborted", error=None)
                raise
            if not is_shorter or (compacted_before and journal.steps_committed == steps_before):
                return result
            compacted_before = True

    async def _go_on(self, attempt: Attempt, engine: Engine) -> None:
        """Let a turn go on that was stopped between two steps: with a shorter conversation, or for one call."""
        budget = attempt.journal.budget
        if budget is None or not budget.sums_up:
            await self._compact_early(attempt, engine)
            return
        await self._reload(attempt)
        budget.begin_last_call(budget.reached)
        attempt.rest = replace(attempt.rest, last_call=budget.reached)

    async def _compact_early(self, attempt: Attempt, engine: Engine) -> None:
        """Shorten the conversation, or leave it if compaction fails: it may still fit."""
        is_shorter = False
        try:
            is_shorter = await self._compact(attempt, engine, "context_limit")
        except EngineFailure as error:
            _log.warning("run.not_compacted", error=error.message)
        if not is_shorter and attempt.journal.is_over_window:
            # Do not try again at each further step.
            attempt.journal.compact_above_tokens = None
            await self._reload(attempt)

    async def _compact(self, attempt: Attempt, engine: Engine, trigger: CompactionTrigger) -> bool:
        """Compact the conversation. Return False if nothing can be summarized."""
        model = self._assembler.model(attempt.claim)
        turn_id = await self._compactor.compact(attempt, engine, model=model, trigger=trigger)
        if turn_id is None:
            return False
        attempt.run.claim = replace(attempt.claim, parent_turn_id=turn_id, context_tokens=0)
        await self._reload(attempt)
        return True

    async def _reload(self, attempt: Attempt) -> None:
        """Continue from committed state, as another worker would."""
        turn_id = attempt.claim.turn_id
        attempt.journal.reload(await persist(self._work.database, attempt.abort, lambda c: load_journal(c, turn_id)))

    async def _prepare(self, attempt: Attempt) -> _Prepared:
        run, journal = attempt.run, attempt.journal
        redactor = current_redactor()
        assert redactor is not None  # noqa: S101 - see `play`
        listener, redact = journal, _unchanged
        if has_secrets := await self._assembler.learn_secrets(run, redactor):
            listener = RedactedListener(journal, redactor)
            redact = listener.redact
        attempt.events.end_former_calls()
        committed = restore_open_calls(journal.committed, redactor) if has_secrets else journal.committed
        options = await self._assembler.options(attempt, committed)
        if has_secrets and options.sessions is not None:
            options = replace(options, sessions=RedactedSessions(options.sessions, redactor))
        journal.note_options(options)
        if run.claim.place is not None:
            await persist_work(
                self._work, run.abort, lambda tx: self._orchestrated.running(tx, run.claim), transaction=False
            )
        (message,) = with_notes([Message("user", run.claim.content)], journal.refused)
        observed = ObservedTurn(listener, tracing=self._tracing, metrics=self._metrics, clock=self._clock)
        return _Prepared(message.content, _without_refused(options, journal.refused), observed, redact)


def _without_refused(options: EngineOptions, refused: Mapping[str, str]) -> EngineOptions:
    """Return options with notes instead of blocks that the provider refused earlier in this turn."""
    if not refused:
        return options
    journal = tuple(replace(step, messages=with_notes(step.messages, refused)) for step in options.journal)
    return replace(options, history=with_notes(options.history, refused), journal=journal)


def _describe(result: EngineResult, model: str) -> None:
    """Add what the attempt came to to its span."""
    annotate(
        {
            "gen_ai.provider.name": result.provider,
            "gen_ai.request.model": model,
            "gen_ai.response.finish_reasons": [result.stop_reason],
            **usage_attributes(result.usage.tokens),
        },
        error=None if result.error is None else result.error.kind,
    )


def _unchanged(result: EngineResult) -> EngineResult:
    return result


class CountedCalls(ForwardingListener):
    """Counts the tool calls of a turn and its subagents by status."""

    def __init__(self, to: TurnListener, metrics: Metrics) -> None:
        super().__init__(to)
        self._metrics = metrics

    async def on_tool_result(self, call: ToolCall, summary: str) -> None:
        """Count a call."""
        self._metrics.tool_calls.labels(call.status).inc()
        await self._to.on_tool_result(call, summary)

    def subagent(self, call_id: str, name: str) -> TurnListener:
        """Count the calls of a subagent as well."""
        return CountedCalls(self._to.subagent(call_id, name), self._metrics)


class ObservedTurn(CountedCalls):
    """Records each step as a span, and counts tool calls.

    A span lasts from the end of the previous step until the step is committed. Its parent is the current span. Steps of
    a subagent are not steps of the run: only their calls are counted.
    """

    def __init__(self, to: TurnListener, *, tracing: Tracing, metrics: Metrics, clock: Clock) -> None:
        super().__init__(to, metrics)
        self._tracing = tracing
        self._clock = clock
        self._began_at = clock.now()

    async def on_step(self, step: StepRecord) -> StepVerdict:
        """Record the step."""
        verdict = await self._to.on_step(step)
        ended_at = self._clock.now()
        self._tracing.record(
            "nova.step",
            start=self._began_at,
            end=ended_at,
            parent=None,
            attributes={
                "nova.step": step.index,
                "nova.step.final": step.final,
                "nova.step.tool_calls": len(step.tool_calls),
            },
        )
        self._began_at = ended_at
        return verdict
