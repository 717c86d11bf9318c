"""I4: nothing waits longer than the bound while no fault is active."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.checker.ledger import Ledger, Run
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import Event, History

_SUSPECT_LOSSES = 2
"""A run that lost so many workers is executed in a process of its own."""


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Compare the life of each run, and the wait for each end, with the times without a fault in it.

    A run may take the bound, the work that its message asks for, and that of the runs before it on its thread. One that
    was lost twice, or waits behind such a run, may take the bound once more: few processes execute suspects. The
    follower of each accepted message gets the end within the bound.
    """
    work = _work_s(history, ledger)
    suspects = _threads_with_suspects(ledger)
    for run in ledger.runs:
        allowed_s = history.bound_s * (2 if run.thread_id in suspects else 1) + work[run.id]
        until = history.settled_at if run.finished_at is None else run.finished_at.timestamp()
        waited_s = calm_s(history, run.created_at.timestamp(), until)
        if waited_s > allowed_s:
            state = f"took {waited_s:.1f} s" if run.has_ended else f"is {run.status} for {waited_s:.1f} s"
            what = f"{run.id} {state} without a fault; {allowed_s:.1f} s are promised"
            yield Violation("I4", what, (str(run),))
        elif not run.has_ended:
            yield Violation("I4", f"{run.id} is {run.status} at the end", (str(run),))
    yield from _followers(history, ledger)


def _threads_with_suspects(ledger: Ledger) -> set[str]:
    lost = Counter(attempt.run_id for attempt in ledger.attempts if attempt.ended == "lost")
    return {run.thread_id for run in ledger.runs if lost[run.id] >= _SUSPECT_LOSSES}


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
    """Each client follows each of its runs: the follower gets the end in time, also of a run that streamed nothing."""
    runs = {run.id: run for run in ledger.runs}
    ends: dict[str, Event] = {}
    for event in history.events:
        if event.type == "stream_end" and event.data.get("final"):
            ends.setdefault(event.run, event)
    followed_since: dict[str, float] = {}
    for ack in history.acks:
        if ack.key is not None and ack.run is not None and ack.path.startswith("/v1/"):
            followed_since.setdefault(ack.run, ack.at)
    for run_id, since in followed_since.items():
        run, end = runs.get(run_id), ends.get(run_id)
        if run is None or run.finished_at is None:
            continue  # reported as I1, or above
        until = history.settled_at if end is None else end.at
        waited_s = calm_s(history, max(since, run.finished_at.timestamp()), until)
        if end is None:
            yield Violation("I4", f"the follower of {run_id} never got the end", _last_seen(history, run_id))
        elif waited_s > history.bound_s:
            what = f"the follower of {run_id} waited {waited_s:.1f} s for the end without a fault"
            yield Violation("I4", f"{what}; {history.bound_s:.1f} s are promised", (str(end), str(run)))


def _last_seen(history: History, run_id: str) -> tuple[str, ...]:
    """The last event of a run, and the last answer or error in place of its stream."""
    events = [event for event in history.events if event.run == run_id]
    answers = [ack for ack in history.acks if ack.path == f"/v1/runs/{run_id}/events"]
    return tuple(str(each) for each in (*events[-1:], *answers[-1:]))
