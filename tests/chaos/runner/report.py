"""What a chaos run prints at its end: counts, faults by kind with recovery times, and the verdict."""

from __future__ import annotations

from collections import Counter
from statistics import median

from tests.chaos.checker import INVARIANTS
from tests.chaos.checker.ledger import Run
from tests.chaos.history import Fault
from tests.chaos.runner.campaign import Outcome

__all__ = ["evidence", "recovery_s", "report"]

_BAR_WIDTH = 40
_SHOWN = 4
"""Violations of one invariant that are printed; all are in the file."""
_LINE = 600


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
    return "\n".join((*_counts(outcome), "", *_faults(outcome), "", *_verdict(outcome)))


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
        ("events received", len(history.events)),
        ("tool executions", len(history.tools)),
        ("webhooks received", len(history.hooks)),
        ("processes ended", len(history.exits)),
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
