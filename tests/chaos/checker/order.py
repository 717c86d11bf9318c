"""I2 and I3: one run of a thread at a time, in order, and nothing of an earlier attempt after a later one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from tests.chaos.checker.ledger import Attempt, Ledger, Message, Run
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import Event, History

_STATEMENT = timedelta(seconds=1)
"""`now()` is the start of a statement, which may then wait for a lock: neighbours may seem to overlap for as long."""


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Check times of attempts, the order of first claims, and the attempts of messages and events."""
    by_thread: dict[str, list[Run]] = {}
    for run in ledger.runs:
        by_thread.setdefault(run.thread_id, []).append(run)
    lost: dict[str, list[Attempt]] = {}
    for attempt in ledger.attempts:
        lost.setdefault(attempt.run_id, []).append(attempt)
    for thread_id, runs in by_thread.items():
        yield from _overlaps(thread_id, runs, lost)
        yield from _order(thread_id, runs)
    yield from _old_writes(ledger, lost)
    yield from _old_events(history)


def _overlaps(thread_id: str, runs: list[Run], lost: dict[str, list[Attempt]]) -> Iterator[Violation]:
    spans: list[tuple[datetime, datetime, str]] = []
    for run in runs:
        spans += [
            (each.started_at, each.ended_at, f"{run.id} attempt {each.attempt}")
            for each in lost.get(run.id, [])
            if each.started_at is not None
        ]
        if run.claimed_at is not None and run.finished_at is not None and run.status != "merged":
            spans.append((run.claimed_at, run.finished_at, f"{run.id} attempt {run.attempt}"))
    spans.sort()
    for before, after in pairwise(spans):
        if after[0] < before[1] - _STATEMENT:
            yield Violation("I2", f"two attempts overlap on {thread_id}", (str(before), str(after)))


def _order(thread_id: str, runs: list[Run]) -> Iterator[Violation]:
    """First claims are in the order of positions, but for runs that interrupted another one."""
    began = [run for run in runs if run.started_at is not None and not run.front]
    for before, after in pairwise(began):
        if before.started_at is not None and after.started_at is not None and after.started_at < before.started_at:
            yield Violation("I2", f"{thread_id} began seq {after.seq} before {before.seq}", (str(before), str(after)))


def _old_writes(ledger: Ledger, lost: dict[str, list[Attempt]]) -> Iterator[Violation]:
    runs = {run.id: run for run in ledger.runs}
    messages = ledger.messages_by_turn()
    for turn in ledger.turns:
        run = runs.get(turn.run_id)
        if run is not None:
            ended = {each.attempt: each for each in lost.get(run.id, [])}
            yield from _old_messages(run, messages.get(turn.id, []), ended)


def _old_messages(run: Run, messages: list[Message], lost: dict[int, Attempt]) -> Iterator[Violation]:
    newest = 0
    for message in messages:
        if message.event_id is None:
            continue
        attempt = int(message.event_id.partition("-")[0])
        ended = lost.get(attempt)
        if attempt < newest:
            yield Violation("I3", f"{run.id}: a message of attempt {attempt} after attempt {newest}", (str(message),))
        if ended is not None and message.created_at > ended.ended_at + _STATEMENT:
            yield Violation("I3", f"{run.id}: a write of attempt {attempt} after its end", (str(message), str(ended)))
        newest = max(newest, attempt)


def _old_events(history: History) -> Iterator[Violation]:
    newest: dict[str, Event] = {}
    for event in history.events:
        before = newest.get(event.follower)
        if before is not None and event.key()[0] < before.key()[0]:
            yield Violation("I3", f"{event.run}: an event of an earlier attempt", (str(before), str(event)))
        if before is None or event.key() > before.key():
            newest[event.follower] = event
