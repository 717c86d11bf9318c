"""Rebuilds a run's events from the ledger when the live stream is gone: committed content, without tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nova_workers.contracts.events import (
    AssistantMessage,
    Compaction,
    ContentLeftOut,
    Event,
    EventCursor,
    Steered,
    Step,
    StreamEnd,
    StreamError,
    StreamStart,
    ToolStatus,
    Usage,
)
from nova_workers.contracts.refusals import kind_of
from nova_workers.ledger.runs.replay import RecordedCall, RecordedCompaction, RecordedRun, RecordedStep

__all__ = ["replay", "replay_steps"]


def replay(run: RecordedRun, after: EventCursor) -> Iterator[tuple[EventCursor, Event]]:
    """Yield the events of an ended run after the cursor `after`.

    Every event has an id, ids never decrease, and only the last event has the run's final id. A step that the client
    received in part is sent whole: the id of its closing event decides.
    """
    final = run.final_event or EventCursor(attempt=run.attempt, seq=1)
    if final.key() <= after.key():
        return
    before = EventCursor()
    for step in run.steps:
        if step.closed_by is not None and step.closed_by.key() < final.key():
            before = step.closed_by
    yield from replay_steps(run, after, before)
    yield from _start(run, before, final.attempt, after)
    # The last step was committed with the run's end; its live events had the ids just before.
    closing = [step for step in run.steps if step.closed_by is None or step.closed_by.key() >= final.key()]
    events = [event for step in closing for event in _step_events(run, step)]
    yield from _numbered([*events, *_ending(run)], final, before)


def replay_steps(run: RecordedRun, after: EventCursor, upto: EventCursor) -> Iterator[tuple[EventCursor, Event]]:
    """Yield the committed steps whose closing events are after `after` and up to `upto`.

    Each attempt that committed one begins with its `stream_start`.
    """
    before = EventCursor()
    for step in run.steps:
        if step.closed_by is None or step.closed_by.key() > upto.key():
            return
        yield from _start(run, before, step.closed_by.attempt, after)
        if step.closed_by.key() > after.key():
            yield from _numbered(_step_events(run, step), step.closed_by, before)
        before = step.closed_by


def _start(
    run: RecordedRun, before: EventCursor, attempt: int, after: EventCursor
) -> Iterator[tuple[EventCursor, Event]]:
    """Yield the start of an attempt, if it begins here. Attempt 0 is a run that never began."""
    start = EventCursor(attempt=attempt, seq=1)
    if attempt > before.attempt and start.key() > after.key():
        yield (
            start,
            StreamStart(
                run_id=run.run_id,
                thread_id=run.thread_id,
                attempt=attempt,
                agent_id=run.agent_id,
                model=run.model,
                label=run.label,
                target=run.target,
                # The start time of later attempts is not stored.
                at=run.started_at if attempt == 1 else None,
            ),
        )


def _step_events(run: RecordedRun, step: RecordedStep) -> list[Event]:
    events = [*_left_out(run)] if step is run.steps[0] else []
    events.extend(_compaction_events(step.compactions))
    if step.text:
        events.append(AssistantMessage(text=step.text, at=step.said_at))
    for call in step.calls:
        events.extend(_call_events(call))
    if step.steered_by:
        events.append(Steered(run_ids=step.steered_by, at=step.closed_at))
    if step.used is not None:
        events.append(Usage.of(step.used).model_copy(update={"at": step.closed_at}))
    events.append(Step(index=step.index, at=step.closed_at))
    return events


def _left_out(run: RecordedRun) -> Iterator[Event]:
    for note in run.left_out:
        yield ContentLeftOut(kind=kind_of(note), note=note)


def _compaction_events(compactions: Sequence[RecordedCompaction]) -> Iterator[Event]:
    for made in compactions:
        yield Compaction(phase="start", tokens_before=made.tokens_before, at=made.began_at)
        yield Compaction(
            phase="end", tokens_before=made.tokens_before, tokens_after=made.tokens_after, at=made.ended_at
        )


def _call_events(call: RecordedCall) -> Iterator[Event]:
    yield ToolStatus(tool_call_id=call.call_id, tool_name=call.tool_name, status="started", at=call.started_at)
    yield ToolStatus(
        tool_call_id=call.call_id,
        tool_name=call.tool_name,
        # A call without an end was interrupted.
        status="completed" if call.status == "completed" else "failed" if call.status == "failed" else "interrupted",
        at=call.completed_at,
    )


def _ending(run: RecordedRun) -> list[Event]:
    events = [] if run.steps else [*_left_out(run)]
    events.extend(_compaction_events(run.compactions))
    if run.error is not None:
        kind, message, retryable = run.error
        partial = bool(run.text)
        events.append(StreamError(error=message, kind=kind, retryable=retryable, partial=partial, at=run.finished_at))
    events.append(
        StreamEnd(
            run_id=run.run_id,
            final=True,
            status=run.status,
            stop_reason=run.stop_reason,
            limit=run.limit,
            text=run.text,
            merged_into=run.merged_into,
            usage=None if run.usage is None else Usage.of(run.usage),
            at=run.finished_at,
        )
    )
    return events


def _numbered(events: list[Event], last: EventCursor, before: EventCursor) -> Iterator[tuple[EventCursor, Event]]:
    """Give the last event the id `last` and the others the ids before it, but none at or below `before`.

    A live stream had at least as many events, so ids suffice; if not, neighbors share an id.
    """
    lowest = before.seq + 1 if before.attempt == last.attempt else 1
    for offset, event in enumerate(events, start=1 - len(events)):
        yield EventCursor(attempt=last.attempt, seq=max(min(lowest, last.seq), last.seq + offset)), event
