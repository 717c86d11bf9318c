"""The tick of evaluations: judges what their runs answered, and queues the next runs, a bounded number at a time.

All of it is in rows, so a crash loses nothing: the next tick of any worker goes on. One transaction of one process
moves an evaluation forward at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.errors import Unavailable
from nova_workers.base.ids import new_id
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.evaluations import sql as ledger
from nova_workers.domain.evaluations.rules.closing import end_evaluation
from nova_workers.domain.evaluations.rules.evaluators import Outcome, ToolUse, evaluate
from nova_workers.domain.evaluations.sql import NewTrialRun, OpenEvaluation, PendingTrial
from nova_workers.domain.threads.rules.past import SaidMessage, turns_of
from nova_workers.domain.threads.sql.importing import import_turns
from nova_workers.ledger.database import Row
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)

WINDOW: Final = 200
"""How many runs of an evaluation are open at once."""
PER_TICK: Final = 90
"""How many runs all evaluations together begin in the period of a tick: 1,000 in 25 s."""
_AT_ONCE: Final = 2
_PAUSE_S: Final = 0.04
"""The doorbells of so many runs at once, with a pause between: all at once, fast runs would fill the workers' loops,
and messages of people would wait for the last of them (measured: 2 s instead of 0.1)."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Whether an evaluation was changed, and the runs that were queued."""

    has_changed: bool
    bells: Sequence[Doorbell] = ()


_UNCHANGED: Final = _Step(False)


class EvaluationTicker:
    """Moves evaluations of all tenants forward. One object per process."""

    def __init__(self, work: Work, clock: Clock) -> None:
        self._work = work
        self._clock = clock

    async def tick(self) -> int:
        """Move each running evaluation forward, and return how many were changed.

        Raises:
            Unavailable: The database does not answer; the next tick finds the rest.
        """
        async with self._work.database.connection() as connection:
            found = await ledger.open_evaluations(connection)
        changed, bells = 0, list[Doorbell]()
        for evaluation_id in found:
            step = await self._advance(evaluation_id, most=max(_AT_ONCE, PER_TICK // len(found)))
            changed += step.has_changed
            bells += step.bells
        await self._ring(bells)
        return changed

    async def _ring(self, bells: Sequence[Doorbell]) -> None:
        """Ring for runs that are committed, a few at a time. The reconciler rings for those that a crash leaves out."""
        for at in range(0, len(bells), _AT_ONCE):
            if at:
                await asyncio.sleep(_PAUSE_S)
            self._work.ring(bells[at : at + _AT_ONCE])

    async def _advance(self, evaluation_id: str, *, most: int) -> _Step:
        try:
            async with self._work.begin() as tx:
                evaluation = await ledger.lock_open(tx.connection, evaluation_id)
                return _UNCHANGED if evaluation is None else await self._step(tx, evaluation, most)
        except Unavailable:
            raise
        except Exception:
            _log.exception("evaluation.not_advanced", evaluation_id=evaluation_id)
            return _UNCHANGED

    async def _step(self, tx: UnitOfWork, evaluation: OpenEvaluation, most: int) -> _Step:
        ended = await ledger.ended_trials(tx.connection, evaluation.id, limit=2 * WINDOW)
        if ended:
            judged = [await _judged(evaluation, row) for row in ended]
            await ledger.write_verdicts(tx.connection, evaluation.id, judged)
        progress = await ledger.read_progress(tx.connection, evaluation.id)
        if not progress.pending and not progress.running:
            await end_evaluation(tx, evaluation, "done")
            return _Step(True)
        if evaluation.budget_usd is not None and progress.spent_usd >= evaluation.budget_usd:
            why = f"the budget of {evaluation.budget_usd:g} USD is spent: {progress.spent_usd:.6f} USD"
            await end_evaluation(tx, evaluation, "stopped", why=why)
            return _Step(True)
        room = min(most, WINDOW - progress.running)
        if not progress.pending or room <= 0:
            return _Step(bool(ended))
        bells = await self._begin(tx, evaluation, await ledger.next_trials(tx.connection, evaluation.id, limit=room))
        return _Step(True, bells)

    async def _begin(
        self, tx: UnitOfWork, evaluation: OpenEvaluation, pending: Sequence[PendingTrial]
    ) -> Sequence[Doorbell]:
        runs = [NewTrialRun(trial, new_id("run"), new_id("thr")) for trial in pending]
        bells = await ledger.begin_trials(tx.connection, evaluation, runs)
        if not bells:
            await end_evaluation(tx, evaluation, "stopped", why=f"agent {evaluation.agent_id!r} was deleted")
            return ()
        now = self._clock.now()
        for one in runs:
            if one.trial.context:
                said = _said(one.trial.context, now)
                await import_turns(
                    tx.connection, evaluation.tenant_id, one.thread_id, evaluation.agent_id, turns_of(said), embed=False
                )
        return bells


async def _judged(evaluation: OpenEvaluation, row: Row) -> JsonObject:
    """Return a trial with its verdicts. One whose run is gone was canceled."""
    status: Any = row["outcome"] if row["outcome"] in ("succeeded", "failed") else "canceled"
    calls: list[JsonObject] = row["calls"] or []
    outcome = Outcome(
        status=status,
        text=row["answer"],
        output=row["output"],
        expected=row["expected"],
        calls=[ToolUse(call["tool"], call["arguments"]) for call in calls],
        steps=row["steps"],
        cost_usd=row["cost_usd"],
        latency_s=row["seconds"],
    )
    verdicts = [await evaluate(evaluator, outcome) for evaluator in evaluation.evaluators]
    return {
        "id": row["id"],
        "outcome": status,
        "answer": row["answer"],
        "error": row["error"],
        "calls": calls,
        "verdicts": [
            {"status": verdict.status, "score": verdict.score, "reason": verdict.reason} for verdict in verdicts
        ],
        "cost_usd": row["cost_usd"],
        "tokens": row["tokens"],
        "seconds": row["seconds"],
        "steps": row["steps"],
    }


def _said(context: Sequence[JsonObject], now: datetime) -> list[SaidMessage]:
    return [SaidMessage(message["role"], _content(message["content"]), now) for message in context]


def _content(content: Any) -> list[JsonObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
