"""The history checker finds a planted violation of what the second tenant was promised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.checker.guests import GuestRows, check
from tests.chaos.history import Fault, Guest, History, ToolRun

_HISTORY = History(
    guests=[
        Guest(1.0, "tree", "orc_1", "tree 1"),
        Guest(1.0, "order", "ord_1", "Final"),
        Guest(1.0, "approval", "run_1", "decided 1", key="yes-1"),
        Guest(1.0, "approval", "run_2", "decided 2", key="no-2"),
        Guest(1.0, "visit", "thr_3", "You said: hello"),
        Guest(1.0, "poison", "run_5", ""),
    ],
    guest_tools=[ToolRun(2.0, "yes-1")],
)


def _run(number: int, text: str, **changes: object) -> dict[str, Any]:
    return {"thread_id": f"thr_{number}", "status": "succeeded", "text": text, "error": None, **changes}


_ROWS = GuestRows(
    trees={"orc_1": {"status": "COMPLETED", "text": "tree 1", "states": ["COMPLETED"]}},
    orders={"ord_1": {"status": "ended", "text": '{"value": "Final"}', "error": None}},
    runs={
        "run_1": _run(1, "decided 1"),
        "run_2": _run(2, "decided 2"),
        "run_3": _run(3, "You said: hello"),
        "run_5": _run(5, "", status="failed", error="worker_lost: Its process ended."),
    },
    calls={"yes-1": {"status": "completed"}, "no-2": {"status": "failed"}},
)


def _rows(part: str, row_id: str, **changes: object) -> GuestRows:
    rows: dict[str, dict[str, Any]] = getattr(_ROWS, part)
    return replace(_ROWS, **{part: {**rows, row_id: {**rows[row_id], **changes}}})


def test_a_record_that_keeps_every_promise_has_no_violation() -> None:
    assert list(check(_HISTORY, _ROWS)) == []


@pytest.mark.parametrize(
    ("invariant", "words", "rows"),
    [
        ("I1", "tree orc_1 is not in the ledger", replace(_ROWS, trees={})),
        ("I1", "ended otherwise", _rows("trees", "orc_1", states=["COMPLETED", "FAILED"])),
        ("I1", "ended otherwise", _rows("trees", "orc_1", text="tree 2")),
        ("I1", "order ord_1 is not in the ledger", replace(_ROWS, orders={})),
        ("I4", "is running at the end", _rows("orders", "ord_1", status="running")),
        ("I1", "has no result", _rows("orders", "ord_1", text=None)),
        ("I1", "run_1 ended otherwise", _rows("runs", "run_1", status="failed")),
        ("I1", "other runs than one", replace(_ROWS, runs={**_ROWS.runs, "run_4": _run(3, "You said: hello")})),
        ("I1", "ends its process", _rows("runs", "run_5", status="succeeded", error=None)),
        ("I6", "completed twice", replace(_ROWS, repeated=("turn_1",))),
        ("I4", "are open", replace(_ROWS, open_waits=("wait_1",))),
    ],
)
def test_a_broken_promise_is_found(invariant: str, words: str, rows: GuestRows) -> None:
    (found,) = check(_HISTORY, rows)
    assert found.invariant == invariant
    assert words in found.what


@pytest.mark.parametrize("tools", [[], [ToolRun(2.0, "yes-1")] * 2, [ToolRun(2.0, "yes-1"), ToolRun(2.0, "no-2")]])
def test_a_call_that_is_executed_otherwise_than_decided_is_found(tools: list[ToolRun]) -> None:
    (found,) = check(replace(_HISTORY, guest_tools=tools), _ROWS)
    assert found.invariant == "I6"


def test_an_order_may_fail_while_models_are_away() -> None:
    away = replace(_HISTORY, faults=[Fault(3.0, 1, "kill_outside", 2.0, touches=["outside"])])
    assert list(check(away, _rows("orders", "ord_1", text=None))) == []


def test_a_permitted_call_may_be_interrupted_before_it_is_executed() -> None:
    interrupted = replace(_ROWS, calls={**_ROWS.calls, "yes-1": {"status": "interrupted"}})
    assert list(check(replace(_HISTORY, guest_tools=[]), interrupted)) == []
