"""What a chaos run prints at its end: counts, faults by kind with recovery times, interrupted runs, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from signal import SIGKILL
from statistics import median, quantiles

from tests.chaos.checker import INVARIANTS
from tests.chaos.checker.ledger import Attempt, Run
from tests.chaos.history import Fault
from tests.chaos.runner.campaign import Outcome

_BAR_WIDTH = 40
_GUESTS = {
    "approval": "calls decided",
    "order": "work orders",
    "poison": "poison runs",
    "tree": "trees of agents",
    "visit": "messages by console",
}
_SHOWN = 4
"""Violations of one invariant that are printed; all are in the file."""
_LINE = 600
_HALF_A_MINUTE_S = 30.0
_SLOW_S = 10.0
"""Ended processes are found by three looks, 1 s apart. An attempt that pauses for longer is explained."""
_SLOWEST = 5


def recovery_s(fault: Fault, runs: list[Run]) -> float:
    """Return the time from a fault's end until the last run that was open then has ended."""
    ends = [
        run.finished_at.timestamp()
        for run in runs
        if run.finished_at is not None and run.created_at.timestamp() < fault.at < run.finished_at.timestamp()
    ]
    return max(ends, default=fault.at) - fault.at


def report(outcome: Outcome) -> str:
    """Return the report as text."""
    parts = (_counts(outcome), _faults(outcome), interruptions(outcome), _verdict(outcome))
    return "\n\n".join("\n".join(part) for part in parts if part)


def evidence(outcome: Outcome) -> str:
    """Return every violation with all of its lines and rows."""
    return "\n\n".join(str(violation) for violation in outcome.violations)


def _counts(outcome: Outcome) -> list[str]:
    history, ledger = outcome.history, outcome.ledger
    answered = sum(ack.status is not None for ack in history.acks)
    rows = [
        ("requests", len(history.acks)),
        ("answered", answered),
        ("messages accepted", len(history.runs_by_key())),
        ("read through doors", len(history.doors)),
        ("events received", len(history.events)),
        ("tool executions", len(history.tools)),
        ("webhooks received", len(history.hooks)),
        ("processes ended", len(history.exits)),
        *((_GUESTS[kind], count) for kind, count in sorted(Counter(guest.kind for guest in history.guests).items())),
        ("occurrences fired", sum(firing.outcome == "fired" for firing in ledger.firings)),
        *((f"runs {status}", count) for status, count in sorted(Counter(run.status for run in ledger.runs).items())),
        ("attempts lost", sum(attempt.ended == "lost" for attempt in ledger.attempts)),
        ("attempts requeued", sum(attempt.ended == "requeued" for attempt in ledger.attempts)),
    ]
    most = max((count for _, count in rows), default=1) or 1
    return [f"  {name:<20}{count:>7}  {'█' * round(_BAR_WIDTH * count / most)}" for name, count in rows]


def _faults(outcome: Outcome) -> list[str]:
    by_name: dict[str, list[float]] = {}
    for fault in outcome.history.faults:
        by_name.setdefault(fault.name, []).append(recovery_s(fault, outcome.ledger.runs))
    lines = [f"  {'fault':<34}{'times':>6}{'recovery p50':>15}{'max':>9}"]
    for name, times in sorted(by_name.items()):
        lines.append(f"  {name:<34}{len(times):>6}{median(times):>13.1f} s{max(times):>7.1f} s")
    failed = [fault for fault in outcome.history.faults if fault.failed]
    return [*lines, *(f"  FAULT {fault.number} FAILED: {fault.name}: {fault.detail}" for fault in failed)]


def interruptions(outcome: Outcome) -> list[str]:
    """Return what became of attempts that ended before their run: a table of lost and of requeued ones.

    A lost attempt is timed from the SIGKILL to a worker in the half minute before its recovery, a requeued one from its
    requeue, each until the next claim of the run. Other losses are not timed: a freeze has no such moment. Of lost
    attempts the time until their recovery and the time from there are shown too, and the slowest one by one.
    """
    executed = Counter(tool.key for tool in outcome.history.tools)
    twice = sum(times > 1 for times in executed.values())
    runs = {run.id: run for run in outcome.ledger.runs}
    lines: list[str] = []
    for ended, says in (("lost", "of a lost worker"), ("requeued", "requeued by a drain")):
        pauses = sorted(_pauses(outcome, ended), key=lambda pause: pause.whole_s)
        if not pauses:
            continue
        attempts = [attempt for attempt in outcome.ledger.attempts if attempt.ended == ended]
        went_on = sum(runs[attempt.run_id].has_ended for attempt in attempts)
        counts = f"{len(attempts):>9}{went_on:>9}"
        lines.append(f"  {says:<22}{counts}{_spread([pause.whole_s for pause in pauses])}")
        if ended == "lost":
            lines += [
                f"    {'until recovered':<38}{_spread([pause.until_recovered_s for pause in pauses])}",
                f"    {'then until claimed':<38}{_spread([pause.then_claimed_s for pause in pauses])}",
                *(_slow(pause, outcome) for pause in reversed(pauses[-_SLOWEST:]) if pause.whole_s > _SLOW_S),
            ]
    if lines:
        lines.insert(0, f"  {'attempts':<22}{'number':>9}{'ended':>9}{'claimed p50':>15}{'p95':>9}{'max':>9}")
        lines.append(f"  of {len(executed)} executions of a tool that is not idempotent, {twice} happened twice")
    return lines


@dataclass(frozen=True)
class _Pause:
    """An interrupted attempt, with Unix times."""

    attempt: Attempt
    began_at: float
    recovered_at: float
    claimed_at: float

    @property
    def until_recovered_s(self) -> float:
        return self.recovered_at - self.began_at

    @property
    def then_claimed_s(self) -> float:
        return self.claimed_at - self.recovered_at

    @property
    def whole_s(self) -> float:
        return self.claimed_at - self.began_at


def _pauses(outcome: Outcome, ended: str) -> Iterator[_Pause]:
    ledger = outcome.ledger
    claims = {(attempt.run_id, attempt.attempt): attempt.started_at for attempt in ledger.attempts}
    claims |= {(run.id, run.attempt): run.claimed_at for run in ledger.runs}
    killed = sorted(
        end.at for end in outcome.history.exits if end.process.startswith("worker-") and end.code == -SIGKILL
    )
    for attempt in ledger.attempts:
        next_claim = claims.get((attempt.run_id, attempt.attempt + 1))
        if attempt.ended != ended or next_claim is None:
            continue
        began_at = recovered_at = attempt.ended_at.timestamp()
        if ended == "lost":
            began_at = max((at for at in killed if recovered_at - _HALF_A_MINUTE_S < at <= recovered_at), default=0.0)
        if began_at:
            yield _Pause(attempt, began_at, recovered_at, next_claim.timestamp())


def _spread(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    p95 = quantiles(ordered, n=20, method="inclusive")[-1] if len(ordered) > 1 else ordered[0]
    return f"{median(ordered):>13.1f} s{p95:>7.1f} s{ordered[-1]:>7.1f} s"


def _slow(pause: _Pause, outcome: Outcome) -> str:
    """Return a line on one attempt, with the faults that were active meanwhile."""
    faults = [
        f"{fault.name} ({fault.began_at - pause.began_at:+.1f} to {fault.at - pause.began_at:+.1f} s)"
        for fault in outcome.history.faults
        if fault.began_at < pause.claimed_at and fault.at > pause.began_at
    ]
    name = f"{pause.attempt.run_id} attempt {pause.attempt.attempt}"
    steps = f"recovered after {pause.until_recovered_s:.1f} s, claimed {pause.then_claimed_s:.1f} s later"
    return f"      {name}: {steps}; meanwhile {', '.join(faults) or 'no fault'}"


def _verdict(outcome: Outcome) -> list[str]:
    lines: list[str] = []
    for invariant, says in INVARIANTS.items():
        found = [violation for violation in outcome.violations if violation.invariant == invariant]
        lines.append(f"  {'ok  ' if not found else 'FAIL'} {invariant} {says}" + (f": {len(found)}" if found else ""))
        lines += [f"    {line[:_LINE]}" for violation in found[:_SHOWN] for line in str(violation).splitlines()]
        if len(found) > _SHOWN:
            lines.append(f"    … and {len(found) - _SHOWN} more")
    verdict = "no violation" if not outcome.violations else f"{len(outcome.violations)} VIOLATIONS"
    return [*lines, "", f"seed {outcome.history.seed}: {verdict}"]
