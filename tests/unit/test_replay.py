"""Replay of a run's events from the ledger."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.runs.sql.replay import RecordedCall, RecordedCompaction, RecordedRun, RecordedStep
from nova_workers.domain.streams.rules.replay import replay

NOW = datetime(2030, 1, 1, tzinfo=UTC)
COMPACTION = RecordedCompaction(900, 400, NOW, NOW)


@st.composite
def recorded_runs(draw: st.DrawFn) -> RecordedRun:
    """Ended runs, with steps over one or more attempts."""
    attempt, seq = 1, 1
    steps: list[RecordedStep] = []
    left_out = ("[Left out, since the model provider refused it: image. Too small.]",) * draw(st.integers(0, 1))
    for index in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            attempt, seq = attempt + 1, 1
        calls = tuple(
            RecordedCall(f"toolu_{index}_{n}", "look", draw(st.sampled_from(["completed", "failed", "pending"])))
            for n in range(draw(st.integers(0, 2)))
        )
        # A live step has an event for each of its own, at the least.
        used = draw(st.sampled_from([None, TokenUsage(input_tokens=10)]))
        compactions = (COMPACTION,) * draw(st.integers(0, 1))
        seq += 3 + 2 * len(calls) + 2 * len(compactions) + len(left_out) + draw(st.integers(0, 30))
        closed_by = EventCursor(attempt=attempt, seq=seq)
        steps.append(RecordedStep(index, closed_by, f"text {index}", calls, (), used, compactions=compactions))
    if draw(st.booleans()):
        attempt, seq = attempt + 1, 1
    final = EventCursor(attempt=attempt, seq=seq + 4 + 2 + len(left_out))
    last = RecordedStep(len(steps), final, "the end", (), ())
    return RecordedRun(
        run_id="run_1",
        thread_id="thr_1",
        agent_id="nova",
        status="succeeded",
        attempt=attempt,
        model="scripted",
        merged_into=None,
        stop_reason="end_turn",
        limit=None,
        text="the end",
        error=None,
        usage=TokenUsage(),
        final_event=final,
        steps=(*steps, last),
        left_out=left_out,
        compactions=(COMPACTION,) * draw(st.integers(0, 1)),
    )


CURSORS = st.builds(EventCursor, attempt=st.integers(0, 6), seq=st.integers(0, 80))


@given(recorded_runs())
def test_a_whole_replay_begins_with_a_start_and_ends_with_one_final_event(run: RecordedRun) -> None:
    events = list(replay(run, EventCursor()))
    assert events[0][1].type == "stream_start"
    assert events[-1][1].type == "stream_end"
    keys = [cursor.key() for cursor, _ in events]
    assert keys == sorted(set(keys))
    assert events[-1][0] == run.final_event
    assert [event.index for _, event in events if event.type == "step"] == list(range(len(run.steps)))


@given(recorded_runs(), CURSORS)
def test_a_resumed_replay_is_the_rest_of_the_whole_one_by_steps(run: RecordedRun, after: EventCursor) -> None:
    assert run.final_event is not None
    rest = list(replay(run, after))
    if after.key() >= run.final_event.key():
        assert rest == []
        return
    whole = list(replay(run, EventCursor()))
    assert rest[-1] == whole[-1]
    unseen = [step.index for step in run.steps if step.closed_by and step.closed_by.key() > after.key()]
    assert [event.index for _, event in rest if event.type == "step"] == unseen
    assert [event.text for _, event in rest if event.type == "assistant_message"] == [
        run.steps[index].text for index in unseen
    ]


@given(recorded_runs(), st.integers(0, 100))
def test_a_follower_cut_off_anywhere_in_a_replay_misses_nothing_by_resuming(run: RecordedRun, cut: int) -> None:
    whole = list(replay(run, EventCursor()))
    seen = whole[: cut % len(whole)]
    rest = list(replay(run, seen[-1][0] if seen else EventCursor()))
    # A step that was cut off comes whole; a client may have to drop what it has of it first.
    assert {repr(event) for _, event in whole} == {repr(event) for _, event in seen + rest if event.type != "restart"}
    keys = [cursor.key() for cursor, _ in seen + rest]
    assert keys == sorted(set(keys))
