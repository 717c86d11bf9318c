"""The history checker finds a planted violation of each invariant, and none in a record that keeps every promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.chaos.checker import INVARIANTS, Ledger, violations
from tests.chaos.checker.ledger import (
    Attempt,
    Call,
    Delivery,
    Effect,
    Firing,
    HeadMove,
    Message,
    Run,
    Thread,
    Trigger,
    Turn,
    Wait,
)
from tests.chaos.history import Ack, Event, Exit, Fault, History, Hook, Recorder, Submission, ToolRun

_T = TypeVar("_T")

NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
PLANNED, STEER, LATER = "run_1", "run_2", "run_3"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def second(seconds: float) -> float:
    return at(seconds).timestamp()


def run(run_id: str, seq: int, began: float | None, ended: float, **more: Any) -> Run:
    status = more.pop("status", "succeeded")
    row: dict[str, Any] = {
        "id": run_id,
        "thread_id": "thr_1",
        "seq": seq,
        "front": False,
        "on_busy": "enqueue",
        "source": "api",
        "status": status,
        "attempt": 1,
        "losses": 0,
        "key": f"key-{run_id}",
        "turn_id": f"turn_{seq}",
        "merged_into": None,
        "trigger_id": None,
        "cancel_requested": False,
        "result_text": None,
        "error": None,
        "final_event_id": None,
        "usages": 1,
        "created_at": at(seq),
        "started_at": None if began is None else at(began),
        "claimed_at": None if began is None else at(began),
        "finished_at": at(ended),
    }
    return Run(**row | more)


def message(turn: int, seq: int, kind: str, text: str, when: float, **more: Any) -> Message:
    row: dict[str, Any] = {"step": None if kind == "query" else (seq + 1) // 2, "run_id": None, "event_id": None}
    return Message(f"turn_{turn}", seq, kind=kind, text=text, created_at=at(when), **row | more)


def event(seconds: float, event_id: str, kind: str, **data: Any) -> Event:
    return Event(second(seconds), "f1", PLANNED, 1, event_id, kind, data)


def effect(run_id: str, kind: str) -> Effect:
    return Effect(f"eff_{run_id}_{kind}", run_id, kind, "done", 1, None, -1.0)


def good_history() -> History:
    """A plan whose worker is lost in its first step, a message that steers it, and a message after it."""
    return History(
        bound_s=20.0,
        healed_at=second(30),
        settled_at=second(40),
        submissions=[
            Submission(second(0), "key-run_1", "c1", "plan", "n1", "enqueue", work_s=3),
            Submission(second(2), "key-run_2", "c1", "steer", "n2", "steer", "thr_1"),
            Submission(second(3), "key-run_3", "c1", "plan", "n3", "enqueue", "thr_1"),
        ],
        acks=[
            Ack(second(1), "/v1/runs", "key-run_1", 202, PLANNED, "thr_1", "queued"),
            Ack(second(2), "/v1/runs", "key-run_2", 202, STEER, "thr_1", "queued"),
            Ack(second(3), "/v1/runs", "key-run_3", 202, LATER, "thr_1", "queued"),
            Ack(second(39), "/v1/runs/run_1", None, 200, PLANNED, "thr_1", "succeeded"),
        ],
        events=[
            event(2, "1-1", "stream_start"),
            event(3, "1-2", "token", text="lost "),
            event(10, "2-1", "stream_start"),
            event(11, "2-2", "token", text="one "),
            event(11, "2-3", "assistant_message", text="one "),
            event(12, "2-4-1", "step", index=0),
            event(13, "2-5", "token", text="ack:n2; two"),
            event(14, "2-6", "stream_end", final=True, status="succeeded", text="ack:n2; two"),
        ],
        tools=[ToolRun(second(11.5), "n1:0")],
        hooks=[Hook(second(15), "dlv_1", PLANNED, "run.completed"), Hook(second(18), "dlv_3", LATER, "run.completed")],
        faults=[Fault(second(9), 1, "kill_worker", second(4))],
        exits=[Exit(second(4), "worker-0", -9, asked=True)],
    )


def good_ledger() -> Ledger:
    return Ledger(
        runs=[
            run(PLANNED, 1, 1, 14, attempt=2, claimed_at=at(10), final_event_id="2-6", result_text="ack:n2; two"),
            run(STEER, 2, None, 13, status="merged", merged_into=PLANNED, usages=0, turn_id=None, attempt=0),
            run(LATER, 3, 15, 16),
            run("run_4", 1, 20, 21, thread_id="thr_2", trigger_id="trg_1", key=None, turn_id="turn_4"),
        ],
        attempts=[Attempt(PLANNED, 1, "lost", at(1), at(9))],
        turns=[
            Turn("turn_1", PLANNED, "thr_1", None, "succeeded", 0, 2, 1),
            Turn("turn_3", LATER, "thr_1", "turn_1", "succeeded", 1, 1, 0),
            Turn("turn_4", "run_4", "thr_2", None, "succeeded", 0, 1, 0),
        ],
        messages=[
            message(1, 0, "query", "PLAN", 1),
            message(1, 1, "response", "one ", 11, event_id="2-4"),
            message(1, 2, "tool_results", "", 12, step=1, event_id="2-4"),
            message(1, 3, "steering", "STEER n2;", 12, step=1, run_id=STEER),
            message(1, 4, "response", "ack:n2; two", 14, step=2, event_id="2-6"),
            message(3, 0, "query", "PLAN", 15),
            message(3, 1, "response", "three", 16),
            message(4, 0, "query", "An occurrence.", 20),
            message(4, 1, "response", "four", 21),
        ],
        calls=[Call("turn_1", "toolu_1", 1, "completed", "n1:0", at(12))],
        threads=[Thread("thr_1", "turn_3", None, 2), Thread("thr_2", "turn_4", None, 1)],
        head_moves=[HeadMove(1, "thr_1", "turn_1"), HeadMove(2, "thr_1", "turn_3"), HeadMove(3, "thr_2", "turn_4")],
        effects=[effect(each, kind) for each in (PLANNED, LATER, "run_4") for kind in ("embeddings", "delivery")],
        deliveries=[
            Delivery("dlv_1", PLANNED, "whk_1", "delivered", 1, None, -1.0),
            Delivery("dlv_3", LATER, "whk_1", "delivered", 1, None, -1.0),
            Delivery("dlv_4", "run_4", "whk_1", "pending", 1, "500", -100.0),
        ],
        triggers=[Trigger("trg_1", "every 2 s"), Trigger("trg_2", "occurrences 2026-03-29T01:00Z")],
        firings=[
            Firing("trg_1", at(20), at(20), "fired", "run_4"),
            Firing("trg_1", at(22), at(22), "skipped", None),
            Firing("trg_2", datetime(2026, 3, 29, 1, tzinfo=UTC), at(22), "skipped", None),
        ],
        webhooks=["whk_1"],
    )


def changed(rows: list[_T], place: int, **fields: Any) -> list[_T]:
    rows = list(rows)
    rows[place] = replace(rows[place], **fields)  # type: ignore[type-var]  # every row is a dataclass
    return rows


History_ = Callable[[History], History]
Ledger_ = Callable[[Ledger], Ledger]


def rows(name: str, place: int, **fields: Any) -> Callable[[Any], Any]:
    """Return a change of one row of a history or a ledger."""
    return lambda whole: replace(whole, **{name: changed(getattr(whole, name), place, **fields)})


def without(name: str, place: int) -> Callable[[Any], Any]:
    """Return the loss of one row."""
    return lambda whole: replace(whole, **{name: [row for at, row in enumerate(getattr(whole, name)) if at != place]})


def added(name: str, *more: object) -> Callable[[Any], Any]:
    """Return the addition of rows."""
    return lambda whole: replace(whole, **{name: [*getattr(whole, name), *more]})


def test_a_record_that_keeps_every_promise_has_no_violation() -> None:
    assert violations(good_history(), good_ledger()) == []


LOST_LEDGER: list[tuple[str, str, Ledger_]] = [
    ("I1", "is not in the ledger", without("runs", 2)),
    ("I1", "has 2 runs", added("runs", run("run_9", 9, 30, 31, thread_id="thr_9", key="key-run_1"))),
    ("I1", "a client got succeeded", rows("runs", 0, status="failed")),
    ("I1", "rows of usage", rows("runs", 0, usages=2)),
    ("I1", "with turns", without("turns", 1)),
    ("I1", "merged, with", without("messages", 3)),
    ("I1", "messages at", without("messages", 1)),
    ("I1", "are no chain", rows("turns", 1, parent_turn_id=None)),
    ("I1", "is not its last turn", rows("threads", 0, head_turn_id="turn_1")),
    ("I1", "held by a run that is over", rows("threads", 0, active_run_id=PLANNED)),
    ("I1", "a call of an ended turn", rows("calls", 0, status="running")),
    ("I1", "is open", added("waits", Wait(PLANNED, "toolu_2", "open"))),
    ("I1", "asked 2 times", added("waits", *[Wait(PLANNED, "toolu_2", "resolved")] * 2)),
    ("I1", "the end had the id", rows("runs", 0, final_event_id="2-9")),
    ("I2", "overlap", rows("runs", 2, claimed_at=at(12))),
    ("I2", "began seq 3 before 1", rows("runs", 2, started_at=at(0.5))),
    ("I3", "a write of attempt 1 after its end", rows("messages", 1, event_id="1-4")),
    ("I3", "of attempt 1 after attempt 2", rows("messages", 4, event_id="1-6")),
    ("I4", "is running for", rows("runs", 2, status="running", finished_at=None)),
    ("I4", "without a fault", rows("runs", 2, finished_at=at(50), claimed_at=at(49))),
    ("I5", "overdue", rows("effects", 0, status="running", overdue_s=21.0)),
    ("I5", "failed", rows("effects", 0, status="failed")),
    ("I5", "has no effect delivery", without("effects", 1)),
    ("I5", "0 deliveries", without("deliveries", 0)),
    ("I5", "its receiver has not got it", rows("deliveries", 2, status="delivered")),
    ("I5", "dlv_4 is overdue", rows("deliveries", 2, overdue_s=30.0)),
    ("I5", "left out or doubled", rows("firings", 1, scheduled_for=at(24))),
    ("I5", "had other occurrences", without("firings", 2)),
    ("I5", "fired without a run", rows("firings", 1, outcome="fired", run_id="run_9")),
    ("I5", "has no occurrence that fired", rows("firings", 0, outcome="skipped", run_id=None)),
    ("I6", "was never executed", added("calls", Call("turn_1", "toolu_2", 1, "completed", "n1:1", at(12)))),
    ("I7", "another text", rows("messages", 1, text="one and more ")),
    ("I8", "answered 2 times", rows("messages", 6, text="ack:n2; again")),
    ("I8", "answered 0 times", rows("messages", 4, text="two")),
]


@pytest.mark.parametrize(("invariant", "words", "lose"), LOST_LEDGER)
def test_a_planted_fault_of_the_ledger_is_found(invariant: str, words: str, lose: Ledger_) -> None:
    found = violations(good_history(), lose(good_ledger()))
    assert any(each.invariant == invariant and words in each.what for each in found), found


LOST_HISTORY: list[tuple[str, str, History_]] = [
    ("I1", "several runs", added("acks", Ack(second(2), "/v1/runs", "key-run_1", 202, LATER))),
    ("I1", "a follower got the end", rows("events", 7, data={"final": True, "status": "failed"})),
    ("I3", "an event of an earlier attempt", added("events", event(15, "1-3", "token", text="old"))),
    ("I4", "never got the end", without("events", 7)),
    ("I4", "run_1 took 13.0 s", lambda whole: replace(rows("faults", 0, breaks=False)(whole), bound_s=5.0)),
    ("I5", "not in the ledger", added("hooks", Hook(second(20), "dlv_9", PLANNED, "run.completed"))),
    ("I6", "executed 2 times", added("tools", ToolRun(second(20), "n1:0"))),
    ("I6", "without a call", added("tools", ToolRun(second(20), "n9:0"))),
    ("I7", "after 2-4-1 came 2-4", rows("events", 6, id="2-4")),
    ("I7", "after 2-4-1 came 2-4-1", rows("events", 6, id="2-4-1")),
    ("I7", "another text", without("events", 6)),
    ("I7", "another text", rows("events", 4, type="restart", data={})),
    ("I7", "the end of", rows("events", 7, data={"final": True, "status": "succeeded", "text": "two"})),
    (
        "I7",
        "cursor_from_the_future",
        added("acks", Ack(second(9), "/events", status=400, code="cursor_from_the_future")),
    ),
    ("I9", "ended by itself", rows("exits", 0, asked=False)),
    ("I9", "was answered with 500", added("acks", Ack(second(9), "/v1/runs", status=500, code="internal_error"))),
]


@pytest.mark.parametrize(("invariant", "words", "lose"), LOST_HISTORY)
def test_a_planted_fault_of_the_history_is_found(invariant: str, words: str, lose: History_) -> None:
    found = violations(lose(good_history()), good_ledger())
    assert any(each.invariant == invariant and words in each.what for each in found), found


def test_every_invariant_has_a_planted_fault() -> None:
    assert {invariant for invariant, *_ in (*LOST_LEDGER, *LOST_HISTORY)} == INVARIANTS.keys()


def test_the_record_of_several_processes_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    with Recorder(one) as recorder, Recorder(two) as other:
        recorder.write("settings", bound_s=7.0, seed=3)
        other.write("tool", key="a:0")
        recorder.write("ack", path="/v1/runs", key="k", status=202, run="run_1")
        recorder.write("healed")
    with two.open("a") as torn:
        torn.write('{"at": 1, "what": "to')
    history = History.read(one, two)
    assert (history.bound_s, history.seed, [tool.key for tool in history.tools]) == (7.0, 3, ["a:0"])
    assert history.runs_by_key() == {"k": "run_1"}
    assert history.healed_at >= history.began_at > 0
