"""The tick of evaluations: judges what their runs answered, and queues the next runs, a bounded number at a time.

All of it is in rows, so a crash loses nothing: the next tick of any worker goes on. One transaction of one process
moves an evaluation forward at a time. What takes time to judge is claimed by one process, which judges it beside
transactions, a few answers at a time.
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
from nova_workers.domain.evaluations.rules.evaluators import Outcome, ToolUse, Verdict
from nova_workers.domain.evaluations.rules.judging import ask_judges, begin_judges, read_judges
from nova_workers.domain.evaluations.rules.verdicts import JudgeAway, Judges, Owner, takes_time
from nova_workers.domain.evaluations.sql import NewTrialRun, OpenEvaluation, PendingTrial, Progress
from nova_workers.domain.judges.sql import judgements
from nova_workers.domain.runs.sql.installs import have_evaluators
from nova_workers.domain.threads.rules.past import SaidMessage, turns_of
from nova_workers.domain.threads.sql.importing import import_turns
from nova_workers.ledger.database import Row
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)

WINDOW: Final = 200
"""How many runs of an evaluation are open at once."""
PER_TICK: Final = 90
"""How many runs all evaluations together begin in the period of a tick: 1,000 in 25 s."""
_FEW: Final = 32
"""How many answers are judged at once where that takes time. On a busy machine the local model pauses for up to 10 s
before each call (measured: 8 at once are 160 in 138 s)."""
_JUDGING_S: Final = 20.0
"""After this long no further answers are judged; the next tick goes on."""
_LEASE_S: Final = 300.0
"""More than a few answers take: by then the process that judges them crashed."""
_PATIENCE_S: Final = 300.0
"""An answer waits for a judge that is away for so long after its end. Then it is not judged."""
_AT_ONCE: Final = 2
_PAUSE_S: Final = 0.04
"""The doorbells of so many runs at once, with a pause between: all at once, fast runs would fill the workers' loops,
and messages of people would wait for the last of them (measured: 2 s instead of 0.1)."""


@dataclass(frozen=True, slots=True)
class _Claimed:
    """Answers whose judging takes time, and which this process has claimed to judge until a time."""

    evaluation: OpenEvaluation
    ended: Sequence[Row]
    until: datetime


@dataclass(frozen=True, slots=True)
class _Step:
    """Whether an evaluation was changed, the runs that were queued, and answers that this process has to judge."""

    has_changed: bool
    bells: Sequence[Doorbell] = ()
    claimed: _Claimed | None = None


_UNCHANGED: Final = _Step(False)


class EvaluationTicker:
    """Moves evaluations of all tenants forward. One object per process."""

    def __init__(self, work: Work, clock: Clock, judges: Judges) -> None:
        self._work = work
        self._clock = clock
        self._judges = judges

    async def tick(self) -> int:
        """Move each running evaluation forward, and return how many were changed.

        Raises:
            Unavailable: The database does not answer; the next tick finds the rest.
        """
        async with self._work.database.connection() as connection:
            found = await ledger.open_evaluations(connection)
        steps = [await self._advance(each, most=max(_AT_ONCE, PER_TICK // len(found))) for each in found]
        await self._ring([bell for step in steps for bell in step.bells])
        await asyncio.gather(*(self._judge(step.claimed) for step in steps if step.claimed is not None))
        return sum(step.has_changed for step in steps)

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
        is_slow = takes_time(evaluation.evaluators)
        ended = await ledger.ended_trials(tx.connection, evaluation.id, limit=_FEW if is_slow else 2 * WINDOW)
        claimed = None
        if ended and not is_slow:
            await _write(tx, evaluation, await self._judged(evaluation, ended))
        elif ended and (until := await self._claim(tx, evaluation, ended)) is not None:
            claimed = _Claimed(evaluation, ended, until)
        has_read = await read_judges(tx, evaluation, limit=2 * WINDOW)
        progress = await _progress(tx, evaluation)
        goes_on = progress.is_open or evaluation.is_fed
        if evaluation.budget_usd is not None and progress.spent_usd >= evaluation.budget_usd and goes_on:
            why = f"the budget of {evaluation.budget_usd:g} USD is spent: {progress.spent_usd:.6f} USD"
            await end_evaluation(tx, evaluation, "stopped", why=why)
            return _Step(True)
        room = min(most, WINDOW - progress.running)
        bells = await begin_judges(tx, evaluation, most=room, with_rated=not progress.is_answering)
        pending = await ledger.next_trials(tx.connection, evaluation.id, limit=max(room - len(bells), 0))
        if pending:
            bells += await self._begin(tx, evaluation, pending)
        elif not bells and not evaluation.is_fed and not (await _progress(tx, evaluation)).is_open:
            await end_evaluation(tx, evaluation, "done")
            return _Step(True)
        return _Step(bool(ended or has_read or bells), bells, claimed)

    async def _claim(self, tx: UnitOfWork, evaluation: OpenEvaluation, ended: Sequence[Row]) -> datetime | None:
        """Claim to judge answers. None: another process does, or may be able to where this one is not."""
        lacking = self._judges.lacks(evaluation.tenant_id, evaluation.evaluators)
        if lacking and _waited_s(ended) <= _PATIENCE_S and await have_evaluators(tx.connection, lacking):
            return None
        return await ledger.claim_judging(tx.connection, evaluation.id, lease_s=_LEASE_S)

    async def _judge(self, claimed: _Claimed) -> None:
        """Judge what takes time, a few answers at a time, until none is left or the time of a tick is over."""
        evaluation, ended, held_until = claimed.evaluation, claimed.ended, claimed.until
        until_s = self._clock.monotonic_s() + _JUDGING_S
        try:
            while ended:
                judged = await self._judged(evaluation, ended)
                async with self._work.begin() as tx:
                    # It may have ended meanwhile, and has its result; or this process stood still for too long.
                    kept_until = await ledger.keep_judging(
                        tx.connection, evaluation.id, held_until=held_until, lease_s=_LEASE_S
                    )
                    if kept_until is None:
                        return
                    await _write(tx, evaluation, judged)
                    has_time = self._clock.monotonic_s() < until_s
                    ended = await ledger.ended_trials(tx.connection, evaluation.id, limit=_FEW) if has_time else ()
                held_until = kept_until
        except JudgeAway as error:
            _log.warning("evaluation.judge_away", evaluation_id=evaluation.id, error=str(error))
        except Unavailable:
            raise
        except Exception:
            _log.exception("evaluation.not_judged", evaluation_id=evaluation.id)
        finally:
            async with self._work.database.connection() as connection:
                await ledger.release_judging(connection, evaluation.id, held_until=held_until)

    async def _judged(self, evaluation: OpenEvaluation, ended: Sequence[Row]) -> list[JsonObject]:
        """Return trials with their verdicts.

        Raises:
            JudgeAway: What judges does not answer now, and the answers are not so old that it is given up.
        """
        outcomes = [_outcome(row) for row in ended]
        whose = Owner(evaluation.tenant_id, evaluation.agent_id)
        gives_up = _waited_s(ended) > _PATIENCE_S
        verdicts = await self._judges.judge(whose, evaluation.evaluators, outcomes, gives_up=gives_up)
        return [_judged_trial(*each) for each in zip(ended, outcomes, verdicts, strict=True)]

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


async def _progress(tx: UnitOfWork, evaluation: OpenEvaluation) -> Progress:
    """Return how far an evaluation is with its answers and its judges together."""
    answers = await ledger.read_progress(tx.connection, evaluation.id)
    judges = await judgements.read_progress(tx.connection, evaluation.id)
    return Progress(
        pending=answers.pending + sum(one.pending for one in judges),
        running=answers.running + sum(one.running for one in judges),
        spent_usd=answers.spent_usd + sum(one.spent_usd for one in judges),
        is_answering=answers.is_open,
    )


async def _write(tx: UnitOfWork, evaluation: OpenEvaluation, judged: Sequence[JsonObject]) -> None:
    """Write the verdicts, and all that follows from them."""
    await ledger.write_verdicts(tx.connection, evaluation.id, judged)
    await ask_judges(tx, evaluation, judged)


def _waited_s(ended: Sequence[Row]) -> float:
    """Return how long the oldest of these answers has waited for its verdicts."""
    return max((row["ended_s_ago"] or 0.0 for row in ended), default=0.0)


def _outcome(row: Row) -> Outcome:
    """Return the outcome of a run. One that is gone was canceled."""
    status: Any = row["outcome"] if row["outcome"] in ("succeeded", "failed") else "canceled"
    calls: list[JsonObject] = row["calls"] or []
    return Outcome(
        status=status,
        text=row["answer"],
        output=row["output"],
        expected=row["expected"],
        rubric=row["rubric"],
        calls=[ToolUse(call["tool"], call["arguments"]) for call in calls],
        steps=row["steps"],
        cost_usd=row["cost_usd"],
        latency_s=row["seconds"],
        error=row["error"],
        input=row["input"],
    )


def _judged_trial(row: Row, outcome: Outcome, verdicts: Sequence[Verdict]) -> JsonObject:
    return {
        "id": row["id"],
        "outcome": outcome.status,
        "answer": row["answer"],
        "error": row["error"],
        "calls": row["calls"] or [],
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
