"""Rebuilds a run's events from the ledger where the live stream misses any: committed content, without tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nova_workers.contracts.events import (
    AFTER_LIVE,
    AssistantMessage,
    Compaction,
    ContentLeftOut,
    Event,
    EventCursor,
    ProviderUnavailable,
    Restart,
    Steered,
    Step,
    StreamEnd,
    StreamError,
    StreamStart,
    ToolStatus,
    Usage,
    Waiting,
)
from nova_workers.contracts.refusals import kind_of
from nova_workers.domain.runs.sql.replay import (
    RecordedCall,
    RecordedCompaction,
    RecordedResponse,
    RecordedRun,
    RecordedStep,
)

_Replayed = Iterator[tuple[EventCursor, Event]]


class GapFilling(NamedTuple):
    """What the ledger has for a follower of an open run whose stream misses events."""

    events: list[tuple[EventCursor, Event]]
    covered: EventCursor
    """The follower has what the live events up to this one contain."""
    is_whole: bool
    """Whether the text of the open step is complete. If not, live events of this step would leave a hole in it."""


def replay(run: RecordedRun, after: EventCursor) -> _Replayed:
    """Yield the events of an ended run after the cursor `after`.

    Ids grow. The end of each step and the end of the run have the ids of the live events. A step that the client
    received in part is sent whole.
    """
    yield from _beyond(after, _replay(run, after))


def _replay(run: RecordedRun, after: EventCursor) -> _Replayed:
    final = run.final_event or EventCursor(attempt=run.attempt, seq=1)
    if final.key() <= after.key():
        return
    ids = _Ids(run, after)
    for step in run.steps:
        if step.closed_by is not None and step.closed_by.key() < final.key():
            yield from ids.step(step, step.closed_by)
    yield from ids.start(final.attempt)
    # The last step was committed with the run's end.
    closing = [step for step in run.steps if step.closed_by is None or step.closed_by.key() >= final.key()]
    yield from ids.without_open_text(text=any(step.text for step in closing[:1]))
    for step in closing:
        yield from ids.numbered(_step_events(run, step))
    *before_end, end = _ending(run)
    yield from ids.numbered(before_end)
    yield final, end


def fill_gap(run: RecordedRun, after: EventCursor, upto: EventCursor) -> GapFilling:
    """Return the committed events of an open run for a follower at `after` that misses live events before `upto`.

    `run` was read after the live event `upto` was: so the ledger has each step that closed before it.
    """
    filling = _fill_gap(run, after, upto)
    return filling._replace(events=list(_beyond(after, filling.events)))


def replay_waits(run: RecordedRun, after: EventCursor) -> _Replayed:
    """Yield the events of a waiting run that a follower at `after` misses, in case its live ones never come.

    The waits have the same ids each time, above those of all live events of the attempt: a client that resumes at one
    of them does not get it again, nor a live event that arrives late.
    """
    yield from _beyond(after, _replay_waits(run, after))


def replay_hold(run: RecordedRun, after: EventCursor) -> _Replayed:
    """Yield why a run is held before its first attempt."""
    if run.hold is not None:
        event = ProviderUnavailable.of(run.hold, run.held_until, held=True)
        yield from _beyond(after, [(EventCursor().following(), event)])


def _replay_waits(run: RecordedRun, after: EventCursor) -> _Replayed:
    if run.response is None:
        return
    if (after.attempt, after.seq) != (run.attempt, AFTER_LIVE):
        ids = _Ids(run, after)
        for step in run.steps:
            if step.closed_by is not None:
                yield from ids.step(step, step.closed_by)
        yield from ids.start(run.attempt)
        yield from ids.response(run.response)
    events: list[Event | None] = [
        Waiting.of(wait.tool_call_id, wait.request).model_copy(update={"at": wait.since}) if wait.is_open else None
        for wait in run.waits
    ]
    events.append(StreamEnd(run_id=run.run_id, final=False, status=run.status))
    for number, event in enumerate(events, 1):
        if event is not None:
            yield EventCursor(attempt=run.attempt, seq=AFTER_LIVE, number=number), event


def _beyond(after: EventCursor, events: Iterable[tuple[EventCursor, Event]]) -> _Replayed:
    """Leave out what a client received before its connection was lost in a replay.

    The events after an id are numbered alike each time, up to the text of the step. What comes before the text can only
    become more, so a client may get its text again, but never misses it.
    """
    return ((cursor, event) for cursor, event in events if cursor.key() > after.key())


def _fill_gap(run: RecordedRun, after: EventCursor, upto: EventCursor) -> GapFilling:
    ids = _Ids(run, after)
    events: list[tuple[EventCursor, Event]] = []
    for step in run.steps:
        if step.closed_by is not None:
            events.extend(ids.step(step, step.closed_by))
    if upto.key() <= ids.reached.key():
        return GapFilling(events, ids.reached, is_whole=True)
    if upto.seq == 1 and (run.response is None or not run.response.is_closed):
        # The start of an attempt voids the open text, and a committed response comes again after it.
        return GapFilling(events, ids.reached, is_whole=True)
    if run.response is None:
        events.extend(ids.start(upto.attempt))
        reached = max(ids.reached, EventCursor(attempt=upto.attempt, seq=1), key=EventCursor.key)
        return GapFilling(events, reached, is_whole=not reached.number and upto.seq == reached.seq + 1)
    if after.seq == AFTER_LIVE and ids.reached == after:
        # The client got this response before the waits.
        return GapFilling(events, after, is_whole=True)
    before = run.response.told_before
    events.extend(ids.start(max(before.attempt, upto.attempt)))
    events.extend(ids.response(run.response))
    sent = EventCursor(attempt=before.attempt, seq=before.seq - 1)
    return GapFilling(events, max(ids.reached, sent, key=EventCursor.key), is_whole=True)


class _Ids:
    """Gives ids to the events for one client, in order."""

    def __init__(self, run: RecordedRun, after: EventCursor) -> None:
        self.reached = after
        """The last live event whose content the client has."""
        self._run = run
        self._sent = EventCursor(attempt=after.attempt, seq=after.seq)
        self._started = after.attempt
        self._closed = EventCursor(attempt=after.attempt, seq=1)
        """The end of the last step that the client has, or the start of an attempt after it."""

    def step(self, step: RecordedStep, closed_by: EventCursor) -> _Replayed:
        """Yield a step that closed at an id, unless the client has it. The last event has that id."""
        if closed_by.key() > self._sent.key():
            yield from self.start(closed_by.attempt)
            yield from self.without_open_text(text=bool(step.text))
            *events, closing = _step_events(self._run, step)
            yield from self.numbered(events)
            yield self._own(closed_by, closing)
        self._closed = max(self._closed, closed_by, key=EventCursor.key)

    def start(self, attempt: int) -> _Replayed:
        """Yield the start of an attempt, unless the client has it. Attempt 0 is a run that never began."""
        if attempt == 0 or self._started >= attempt:
            return
        self._started = attempt
        if attempt == 1:
            yield self._own(EventCursor(attempt=1, seq=1), _stream_start(self._run, attempt))
        else:
            # With the id of the live event, a client that resumes there would miss the response of a step that waited.
            yield from self.numbered([_stream_start(self._run, attempt)])
        self._closed = self._sent

    def response(self, response: RecordedResponse) -> _Replayed:
        """Yield a committed response whose calls are open; with a `step` event if a live one closed its text."""
        yield from self.without_open_text(text=bool(response.text))
        events: list[Event] = []
        if response.text:
            events.append(AssistantMessage(text=response.text, step=response.index, at=response.said_at))
        events.extend(map(_call_start, response.calls))
        events.extend(call.change for call in response.calls if call.change is not None)
        if response.is_closed:
            events.append(Step(index=response.index, at=response.said_at))
        yield from self.numbered(events)

    def without_open_text(self, *, text: bool) -> _Replayed:
        """Void what the client may have of the open step, unless the step's text replaces it."""
        if not text and self._sent.key() > self._closed.key():
            yield from self.numbered([Restart()])

    def numbered(self, events: Sequence[Event]) -> _Replayed:
        """Yield events that have no id of their own."""
        for event in events:
            self._sent = self._sent.following()
            yield self._sent, event

    def _own(self, cursor: EventCursor, event: Event) -> tuple[EventCursor, Event]:
        self._sent = self.reached = cursor
        return cursor, event


def _stream_start(run: RecordedRun, attempt: int) -> StreamStart:
    return StreamStart(
        run_id=run.run_id,
        thread_id=run.thread_id,
        attempt=attempt,
        agent_id=run.agent_id,
        model=run.model,
        label=run.label,
        target=run.target,
        # The start time of later attempts is not stored.
        at=run.started_at if attempt == 1 else None,
    )


def _step_events(run: RecordedRun, step: RecordedStep) -> list[Event]:
    events = [*_left_out(run)] if step is run.steps[0] else []
    events.extend(_compaction_events(step.compactions))
    if step.text:
        events.append(AssistantMessage(text=step.text, step=step.index, at=step.said_at))
    # In this order, the events of a step begin with those of its response while its calls are open.
    events.extend(map(_call_start, step.calls))
    for call in step.calls:
        events.append(_call_end(call))
        if call.change is not None:
            events.append(call.change)
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


def _call_start(call: RecordedCall) -> ToolStatus:
    return ToolStatus(tool_call_id=call.call_id, tool_name=call.tool_name, status="started", at=call.started_at)


def _call_end(call: RecordedCall) -> ToolStatus:
    return ToolStatus(
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
