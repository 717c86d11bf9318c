"""The history checker finds a planted violation of each invariant, and none in a record that keeps every promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import INVARIANTS, violations
from tests.chaos.checker.ledger import Attempt, Call, Wait
from tests.chaos.history import Ack, DoorReading, Exit, Fault, History, Hook, Once, Recorder, Submission, ToolRun
from tests.unit.chaos.good_record import (
    LATER,
    PLANNED,
    HistoryChange,
    LedgerChange,
    added,
    at,
    ended,
    event,
    every,
    good_history,
    good_ledger,
    rows,
    run,
    second,
    without,
)


def test_a_record_that_keeps_every_promise_has_no_violation() -> None:
    assert violations(good_history(), good_ledger()) == []


LOST_LEDGER: list[tuple[str, str, LedgerChange]] = [
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
    ("I1", "failed with unknown: boom", ended("failed", error="unknown: boom")),
    ("I1", "failed with worker_lost", ended("failed", error="worker_lost: Lost.")),
    ("I1", "failed with model_error", ended("failed", error="model_error: Away.")),
    ("I1", "is canceled, without a reason", ended("canceled")),
    ("I1", "is canceled, without a reason", ended("canceled", cancel_requested=True)),
    ("I1", "1 steps, 0 responses", every("messages", lambda row: row.turn_id == "turn_3" and row.kind != "query")),
    ("I1", "another text than its plan", every("messages", lambda row: row.turn_id == "turn_3" and row.seq > 0)),
    ("I1", "another text than its plan", rows("messages", 6, text="n3.0.0 ")),
    ("I1", "another text than its plan", rows("messages", 6, text="n3.0.0 n3.0.0 n3.0.1 ")),
    ("I1", "another text than its plan", rows("messages", 8, text="")),
    ("I1", "is not the last response", rows("runs", 2, result_text="n3.0.0 ")),
    ("I1", "counts 1 calls, and has 0", without("calls", 0)),
    ("I2", "overlap", rows("runs", 2, claimed_at=at(12))),
    ("I2", "began seq 3 before 1", rows("runs", 2, started_at=at(0.5))),
    ("I3", "a write of attempt 1 after its end", rows("messages", 1, event_id="1-4")),
    ("I3", "of attempt 1 after attempt 2", rows("messages", 4, event_id="1-6")),
    ("I4", "is running for", rows("runs", 2, status="running", finished_at=None)),
    ("I4", "without a fault", rows("runs", 2, finished_at=at(50), claimed_at=at(49))),
    ("I5", "overdue", rows("effects", 0, status="running", overdue_s=21.0)),
    ("I5", "failed", rows("effects", 0, status="failed")),
    ("I5", "has no effect delivery", without("effects", 1)),
    ("I5", "has no effect embeddings", every("effects", lambda row: row.kind == "embeddings")),
    ("I5", "dlv_4 failed", rows("deliveries", 2, status="failed")),
    ("I5", "the webhook that gets the end of every run is gone", lambda ledger: replace(ledger, webhooks=[])),
    ("I5", "0 deliveries", without("deliveries", 0)),
    ("I5", "its receiver has not got it", rows("deliveries", 2, status="delivered")),
    ("I5", "dlv_4 is overdue", rows("deliveries", 2, overdue_s=30.0)),
    ("I5", "left out or doubled", rows("firings", 1, scheduled_for=at(24))),
    ("I5", "no occurrence after the last fault", every("firings", lambda row: row.trigger_id == "trg_1")),
    ("I5", "no occurrence after the last fault", without("firings", 1)),
    ("I5", "left out its first occurrence", without("firings", 0)),
    ("I5", "the trigger that fires all the time is gone", without("triggers", 0)),
    ("I5", "had other occurrences", without("firings", 2)),
    ("I5", "fired without a run", rows("firings", 1, outcome="fired", run_id="run_9")),
    ("I5", "has no occurrence that fired", rows("firings", 0, outcome="skipped", run_id=None)),
    ("I6", "was never executed", added("calls", Call("turn_1", "toolu_2", 1, "completed", "n1:1", at(12)))),
    ("I7", "another text", rows("messages", 1, text="one and more ")),
    ("I8", "answered 2 times", rows("messages", 6, text="ack:n2; again")),
    ("I8", "answered 0 times", rows("messages", 4, text="two")),
]


@pytest.mark.parametrize(("invariant", "words", "lose"), LOST_LEDGER)
def test_a_planted_fault_of_the_ledger_is_found(invariant: str, words: str, lose: LedgerChange) -> None:
    found = violations(good_history(), lose(good_ledger()))
    assert any(each.invariant == invariant and words in each.what for each in found), found


LOST_HISTORY: list[tuple[str, str, HistoryChange]] = [
    ("I1", "several runs", added("acks", Ack(second(2), "/v1/runs", "key-run_1", 202, LATER))),
    ("I1", "a follower got the end", rows("events", 7, data={"final": True, "status": "failed"})),
    ("I3", "an event of an earlier attempt", added("events", event(15, "1-3", "token", text="old"))),
    ("I4", "never got the end", without("events", 7)),
    ("I4", "never got the end", lambda whole: replace(whole, events=[])),
    ("I4", "waited 22.0 s for the end", rows("events", 10, at=second(38))),
    ("I4", "run_1 took 13.0 s", lambda whole: replace(rows("faults", 0, breaks=False)(whole), bound_s=5.0)),
    ("I1", "is merged, without a reason", rows("submissions", 1, on_busy="enqueue")),
    ("I5", "not in the ledger", added("hooks", Hook(second(20), "dlv_9", PLANNED, "run.completed"))),
    ("I6", "executed 2 times", added("tools", ToolRun(second(20), "n1:0"))),
    ("I6", "without a call", added("tools", ToolRun(second(20), "n9:0"))),
    ("I7", "after 2-4-1 came 2-4", rows("events", 6, id="2-4")),
    ("I7", "after 2-4-1 came 2-4-1", rows("events", 6, id="2-4-1")),
    ("I7", "another text", without("events", 6)),
    ("I7", "another text", rows("events", 4, type="restart", data={})),
    ("I7", "the end of", rows("events", 7, data={"final": True, "status": "succeeded", "text": "n1.1.0 "})),
    (
        "I7",
        "cursor_from_the_future",
        added("acks", Ack(second(9), "/events", status=400, code="cursor_from_the_future")),
    ),
    ("I4", "has no answer", added("doors", DoorReading(second(30), "openai-wait", "key-9", "", "missing", ""))),
    ("I1", "the run of", added("doors", DoorReading(second(30), "mcp-task", "key-9", "run_9", "completed", ""))),
    ("I1", "got failed, the ledger", added("doors", DoorReading(second(30), "mcp-task", "k", LATER, "failed", ""))),
    ("I7", "another text", added("doors", DoorReading(second(30), "openai-wait", "k", LATER, "completed", "n3.0.0 "))),
    (
        "I7",
        "was done twice",
        added(
            "doors",
            DoorReading(second(30), "openai-stream", "k", LATER, "completed", "n3.0.0 n3.0.1 ", ["a was done twice"]),
        ),
    ),
    ("I9", "ended by itself", rows("exits", 0, asked=False)),
    ("I9", "was answered with 500", added("acks", Ack(second(9), "/v1/runs", status=500, code="internal_error"))),
    ("I9", "is not", added("once", Once(second(9), "edit", "once-1", 200, is_done=False))),
    ("I9", "and it is", added("once", Once(second(9), "cancel", "once-1", 503, is_done=True, code="unavailable"))),
    ("I9", "nothing to look at", added("once", Once(second(9), "submit", "once-1", 503, False, "outcome_unknown"))),
]


@pytest.mark.parametrize(("invariant", "words", "lose"), LOST_HISTORY)
def test_a_planted_fault_of_the_history_is_found(invariant: str, words: str, lose: HistoryChange) -> None:
    found = violations(lose(good_history()), good_ledger())
    assert any(each.invariant == invariant and words in each.what for each in found), found


REASONS: list[tuple[str, dict[str, Any], LedgerChange, HistoryChange]] = [
    (
        "failed",
        {"error": "model_error: Away."},
        lambda ledger: ledger,
        added("faults", Fault(second(14), 2, "kill_outside", second(13), touches=["outside"])),
    ),
    (
        "failed",
        {"error": "worker_lost: Lost.", "losses": 5, "attempt": 6},
        added("attempts", *(Attempt(LATER, each, "lost", at(14.5), at(14.6)) for each in range(1, 6))),
        lambda history: history,
    ),
    (
        "canceled",
        {"cancel_requested": True},
        lambda ledger: ledger,
        added("acks", Ack(second(15), "/v1/runs/run_3/cancel", status=202)),
    ),
    (
        "canceled",
        {"cancel_requested": True},
        lambda ledger: ledger,
        added("submissions", Submission(second(15), "key-run_9", "c1", "plan", "n9", "interrupt", "thr_1")),
    ),
]


@pytest.mark.parametrize(("status", "fields", "lose", "happen"), REASONS)
def test_a_run_without_success_whose_reason_is_in_the_record_is_no_violation(
    status: str, fields: dict[str, Any], lose: LedgerChange, happen: HistoryChange
) -> None:
    """Its text is the beginning of its plan."""
    beginning = "n3.0.0 "
    ledger = rows("messages", 6, text=beginning)(ended(status, result_text=beginning, **fields)(lose(good_ledger())))
    ledger = every("effects", lambda row: row.run_id == LATER and row.kind == "embeddings")(ledger)
    history = rows("events", 9, data={"text": beginning})(happen(good_history()))
    history = rows("events", 10, data={"final": True, "status": status, "text": beginning})(history)
    assert violations(history, ledger) == []


def test_an_effect_fails_without_violation_only_if_as_many_workers_ended_since_its_run_as_it_has_attempts() -> None:
    lost = rows("effects", 0, status="failed", attempts=8, error="The worker was lost in each of 8 attempts.")
    ledger = lost(good_ledger())
    failed = ["the effect embeddings of run_1 failed"]
    for first_s, found in ((14, []), (13, failed), (4, failed)):
        ends = [Exit(second(first_s + each), "worker-0", -9, asked=True) for each in range(8)]
        assert [each.what for each in violations(added("exits", *ends)(good_history()), ledger)] == found, first_s


def test_what_a_webhook_got_after_the_ledger_was_read_is_no_violation() -> None:
    history = added("hooks", Hook(second(20), "dlv_9", PLANNED, "run.completed"))(good_history())
    assert violations(history, replace(good_ledger(), read_at=second(20))) == []


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
