"""I4: nothing waits longer than the bound while no fault is active."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.checker.ledger import Ledger, Run
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History

__all__ = ["calm_s", "check"]


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Compare the life of each run, and of each follower, with the times without a fault in it.

    A run may take the bound, the work that its message asks for, and that of the runs before it on its thread.
    """
    work = _work_s(history, ledger)
    for run in ledger.runs:
        allowed_s = history.bound_s + work[run.id]
        until = history.settled_at if run.finished_at is None else run.finished_at.timestamp()
        waited_s = calm_s(history, run.created_at.timestamp(), until)
        if waited_s > allowed_s:
            state = f"took {waited_s:.1f} s" if run.has_ended else f"is {run.status} for {waited_s:.1f} s"
            what = f"{run.id} {state} without a fault; {allowed_s:.1f} s are promised"
            yield Violation("I4", what, (str(run),))
        elif not run.has_ended:
            yield Violation("I4", f"{run.id} is {run.status} at the end", (str(run),))
    yield from _followers(history, ledger)


def calm_s(history: History, since: float, until: float) -> float:
    """Return the longest time without a fault within a span."""
    longest, at = 0.0, since
    for fault in sorted(history.faults, key=lambda fault: fault.began_at):
        if not fault.breaks or fault.at <= at or fault.began_at >= until:
            continue
        longest = max(longest, fault.began_at - at)
        at = max(at, fault.at)
    return max(longest, until - at)


def _work_s(history: History, ledger: Ledger) -> dict[str, float]:
    """Return how long each run may work: its own work, and that of earlier runs of its thread."""
    asked = {submission.key: submission.work_s for submission in history.submissions}
    total: dict[str, float] = {}
    by_thread: dict[str, list[Run]] = {}
    for run in ledger.runs:
        by_thread.setdefault(run.thread_id, []).append(run)
    for runs in by_thread.values():
        for at, run in enumerate(runs):
            open_before = [
                each
                for each in runs[:at]
                if each.finished_at is None or each.finished_at.timestamp() > run.created_at.timestamp()
            ]
            total[run.id] = sum(asked.get(each.key or "", 1.0) for each in (*open_before, run))
    return total


def _followers(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Every follower of a run that ended has its end."""
    ended = {run.id for run in ledger.runs if run.has_ended}
    followed: dict[str, str] = {}
    over: set[str] = set()
    for event in history.events:
        followed[event.follower] = event.run
        if event.type == "stream_end" and event.data.get("final"):
            over.add(event.follower)
    for follower, run_id in followed.items():
        if run_id in ended and follower not in over:
            last = [str(event) for event in history.events if event.follower == follower][-1]
            yield Violation("I4", f"{follower} never got the end of {run_id}", (last,))
