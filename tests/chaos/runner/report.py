"""What a chaos run prints at its end: counts, faults by kind with recovery times, interrupted runs, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from signal import SIGKILL
from statistics import median, quantiles

from tests.chaos.checker import INVARIANTS
from tests.chaos.checker.ledger import Run
from tests.chaos.history import Fault
from tests.chaos.runner.campaign import Outcome

__all__ = ["evidence", "interruptions", "recovery_s", "report"]

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
    requeue, each until the next claim of the run. Other losses are not timed: a freeze has no such moment.
    """
    executed = Counter(tool.key for tool in outcome.history.tools)
    twice = sum(times > 1 for times in executed.values())
    lines: list[str] = []
    for ended, says in (("lost", "of a lost worker"), ("requeued", "requeued by a drain")):
        pauses = sorted(_pauses_s(outcome, ended))
        attempts = [attempt for attempt in outcome.ledger.attempts if attempt.ended == ended]
        if not pauses:
            continue
        runs = {run.id: run for run in outcome.ledger.runs}
        went_on = sum(runs[attempt.run_id].has_ended for attempt in attempts)
        p95 = quantiles(pauses, n=20, method="inclusive")[-1] if len(pauses) > 1 else pauses[0]
        lines.append(
            f"  {says:<22}{len(attempts):>9}{went_on:>9}{median(pauses):>13.1f} s{p95:>7.1f} s{pauses[-1]:>7.1f} s"
        )
    if lines:
        lines.insert(0, f"  {'attempts':<22}{'number':>9}{'ended':>9}{'claimed p50':>15}{'p95':>9}{'max':>9}")
        lines.append(f"  of {len(executed)} executions of a tool that is not idempotent, {twice} happened twice")
    return lines


def _pauses_s(outcome: Outcome, ended: str) -> Iterator[float]:
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
        since = attempt.ended_at.timestamp()
        if ended == "lost":
            since = max((at for at in killed if since - _HALF_A_MINUTE_S < at <= since), default=0.0)
        if since:
            yield next_claim.timestamp() - since


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
