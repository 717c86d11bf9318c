"""The report of a chaos run says where the pause of an interrupted attempt was."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGKILL

from tests.chaos.checker import GuestRows
from tests.chaos.checker.ledger import Attempt, Ledger
from tests.chaos.history import Exit, Fault, History
from tests.chaos.runner.campaign import Outcome
from tests.chaos.runner.report import interruptions
from tests.unit.chaos.good_record import at, good_ledger, run, second


def _outcome(history: History, ledger: Ledger) -> Outcome:
    return Outcome(history, ledger, GuestRows(), [])


def test_a_lost_attempt_is_timed_until_its_recovery_and_from_there_to_its_claim() -> None:
    killed = Exit(second(10), "worker-1", -SIGKILL, asked=True)
    ledger = replace(
        good_ledger(),
        runs=[run("run_1", 1, 14, 20, attempt=2), run("run_2", 2, 45, 50, attempt=2)],
        attempts=[
            Attempt("run_1", 1, "lost", at(1), at(13)),
            Attempt("run_2", 1, "lost", at(1), at(13)),
        ],
    )
    fault = Fault(second(44), 1, "stop_valkey", second(12), touches=["valkey"])
    lines = interruptions(_outcome(History(exits=[killed], faults=[fault]), ledger))
    table = [" ".join(line.split()) for line in lines]
    assert table[1].startswith("of a lost worker 2 2 19.5 s")
    assert table[2] == "until recovered 3.0 s 3.0 s 3.0 s"
    assert table[3] == "then until claimed 16.5 s 30.4 s 32.0 s"
    assert table[4] == (
        "run_2 attempt 1: recovered after 3.0 s, claimed 32.0 s later; meanwhile stop_valkey (+2.0 to +34.0 s)"
    )
