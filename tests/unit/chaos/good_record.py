"""A small record of a chaos run that keeps every promise, and ways to lose rows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from tests.chaos.checker import Ledger
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
)
from tests.chaos.history import PLAIN_ANSWER, Ack, Event, Exit, Fault, History, Hook, Submission, ToolRun

_T = TypeVar("_T")

NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
_TURN_STATUS = {"failed": "failed", "canceled": "aborted"}
PLANNED, _STEER, LATER = "run_1", "run_2", "run_3"
_ONE, _TWO, _THREE = "n1.0.0 ", "ack:n2; n1.1.0 ", "n3.0.0 n3.0.1 "


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


def _message(turn: int, seq: int, kind: str, text: str, when: float, **more: Any) -> Message:
    row: dict[str, Any] = {"step": None if kind == "query" else (seq + 1) // 2, "run_id": None, "event_id": None}
    return Message(f"turn_{turn}", seq, kind=kind, text=text, created_at=at(when), **row | more)


def event(seconds: float, event_id: str, kind: str, run_id: str = PLANNED, **data: Any) -> Event:
    return Event(second(seconds), f"f-{run_id}", run_id, 1, event_id, kind, data)


def _effect(run_id: str, kind: str) -> Effect:
    return Effect(f"eff_{run_id}_{kind}", run_id, kind, "done", 1, None, -1.0)


def good_history() -> History:
    """A plan whose worker is lost in its first step, a message that steers it, and a message after it."""
    return History(
        bound_s=20.0,
        healed_at=second(21),
        settled_at=second(40),
        submissions=[
            Submission(second(0), "key-run_1", "c1", "plan", "n1", "enqueue", work_s=3, words=[1, 1]),
            Submission(second(2), "key-run_2", "c1", "steer", "n2", "steer", "thr_1"),
            Submission(second(3), "key-run_3", "c1", "plan", "n3", "enqueue", "thr_1", words=[2]),
        ],
        acks=[
            Ack(second(1), "/v1/runs", "key-run_1", 202, PLANNED, "thr_1", "queued"),
            Ack(second(2), "/v1/runs", "key-run_2", 202, _STEER, "thr_1", "queued"),
            Ack(second(3), "/v1/runs", "key-run_3", 202, LATER, "thr_1", "queued"),
            Ack(second(39), "/v1/runs/run_1", None, 200, PLANNED, "thr_1", "succeeded"),
        ],
        events=[
            event(2, "1-1", "stream_start"),
            event(3, "1-2", "token", text="lost "),
            event(10, "2-1", "stream_start"),
            event(11, "2-2", "token", text=_ONE),
            event(11, "2-3", "assistant_message", text=_ONE),
            event(12, "2-4-1", "step", index=0),
            event(13, "2-5", "token", text=_TWO),
            event(14, "2-6", "stream_end", final=True, status="succeeded", text=_TWO),
            event(14, "0-1", "stream_end", _STEER, final=True, status="merged"),
            event(15, "1-1", "token", LATER, text=_THREE),
            event(16, "1-2", "stream_end", LATER, final=True, status="succeeded", text=_THREE),
        ],
        tools=[ToolRun(second(11.5), "n1:0")],
        hooks=[Hook(second(15), "dlv_1", PLANNED, "run.completed"), Hook(second(18), "dlv_3", LATER, "run.completed")],
        faults=[Fault(second(9), 1, "kill_worker", second(4))],
        exits=[Exit(second(4), "worker-0", -9, asked=True)],
    )


def good_ledger() -> Ledger:
    return Ledger(
        runs=[
            run(PLANNED, 1, 1, 14, attempt=2, claimed_at=at(10), final_event_id="2-6", result_text=_TWO),
            run(_STEER, 2, None, 13, status="merged", merged_into=PLANNED, usages=0, turn_id=None, attempt=0),
            run(LATER, 3, 15, 16, result_text=_THREE),
            run(
                "run_4",
                1,
                20,
                21,
                thread_id="thr_2",
                trigger_id="trg_1",
                key=None,
                turn_id="turn_4",
                result_text=PLAIN_ANSWER,
            ),
        ],
        attempts=[Attempt(PLANNED, 1, "lost", at(1), at(9))],
        turns=[
            Turn("turn_1", PLANNED, "thr_1", None, "succeeded", 2, 1),
            Turn("turn_3", LATER, "thr_1", "turn_1", "succeeded", 1, 0),
            Turn("turn_4", "run_4", "thr_2", None, "succeeded", 1, 0),
        ],
        messages=[
            _message(1, 0, "query", "PLAN", 1),
            _message(1, 1, "response", _ONE, 11, event_id="2-4"),
            _message(1, 2, "tool_results", "", 12, step=1, event_id="2-4"),
            _message(1, 3, "steering", "STEER n2;", 12, step=1, run_id=_STEER),
            _message(1, 4, "response", _TWO, 14, step=2, event_id="2-6"),
            _message(3, 0, "query", "PLAN", 15),
            _message(3, 1, "response", _THREE, 16),
            _message(4, 0, "query", "An occurrence.", 20),
            _message(4, 1, "response", PLAIN_ANSWER, 21),
        ],
        calls=[Call("turn_1", "toolu_1", 1, "completed", "n1:0", at(12))],
        threads=[Thread("thr_1", "turn_3", None, 2), Thread("thr_2", "turn_4", None, 1)],
        head_moves=[HeadMove(1, "thr_1", "turn_1"), HeadMove(2, "thr_1", "turn_3"), HeadMove(3, "thr_2", "turn_4")],
        effects=[_effect(each, kind) for each in (PLANNED, LATER, "run_4") for kind in ("embeddings", "delivery")],
        deliveries=[
            Delivery("dlv_1", PLANNED, "whk_1", "delivered", 1, None, -1.0),
            Delivery("dlv_3", LATER, "whk_1", "delivered", 1, None, -1.0),
            Delivery("dlv_4", "run_4", "whk_1", "pending", 1, "500", -100.0),
        ],
        triggers=[Trigger("trg_1", "every 2 s", at(19)), Trigger("trg_2", "occurrences 2026-03-29T01:00Z", at(19))],
        firings=[
            Firing("trg_1", at(20), at(20), "fired", "run_4"),
            Firing("trg_1", at(22), at(22), "skipped", None),
            Firing("trg_2", datetime(2026, 3, 29, 1, tzinfo=UTC), at(22), "skipped", None),
        ],
        webhooks=["whk_1"],
    )


def _changed(rows: list[_T], place: int, **fields: Any) -> list[_T]:
    rows = list(rows)
    rows[place] = replace(rows[place], **fields)  # type: ignore[type-var]  # every row is a dataclass
    return rows


HistoryChange = Callable[[History], History]
LedgerChange = Callable[[Ledger], Ledger]


def rows(name: str, place: int, **fields: Any) -> Callable[[Any], Any]:
    """Return a change of one row of a history or a ledger."""
    return lambda whole: replace(whole, **{name: _changed(getattr(whole, name), place, **fields)})


def without(name: str, place: int) -> Callable[[Any], Any]:
    """Return the loss of one row."""
    return lambda whole: replace(whole, **{name: [row for at, row in enumerate(getattr(whole, name)) if at != place]})


def added(name: str, *more: object) -> Callable[[Any], Any]:
    """Return the addition of rows."""
    return lambda whole: replace(whole, **{name: [*getattr(whole, name), *more]})


def every(name: str, is_lost: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return the loss of all rows of a kind."""
    return lambda whole: replace(whole, **{name: [row for row in getattr(whole, name) if not is_lost(row)]})


def ended(status: str, **fields: Any) -> LedgerChange:
    """Return another outcome of the last message, in consistent rows."""
    run_row, turn_row = rows("runs", 2, status=status, **fields), rows("turns", 1, status=_TURN_STATUS[status])
    return lambda ledger: turn_row(run_row(ledger))
