"""I1, I4, I7: a client of a door has its one run's answer, whole, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.checker.ledger import Ledger, Run
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import DoorReading, History

_STATUSES = {
    "completed": "succeeded",
    "failed": "failed",
    "cancelled": "canceled",
    "incomplete": "canceled",
    # Of ACP.
    "end_turn": "succeeded",
    # Of LangGraph.
    "success": "succeeded",
    "error": "failed",
    "interrupted": "canceled",
    "TASK_STATE_COMPLETED": "succeeded",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_CANCELED": "canceled",
}
"""The statuses of runs, by those of protocols."""
_LAST_ONLY = {"a2a", "mcp-task"}
"""Clients that get the agent's last message alone."""


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Compare what each client of a door read in the end with the ledger."""
    runs = {run.id: run for run in ledger.runs}
    texts: dict[str, list[str]] = {}
    for message in ledger.messages:
        if message.kind == "response":
            texts.setdefault(message.turn_id, []).append(message.text)
    for reading in history.doors:
        run = runs.get(reading.run)
        if reading.status == "missing":
            yield Violation("I4", f"{reading.door} has no answer to {reading.key}", (str(reading),))
        elif run is None:
            yield Violation("I1", f"the run of {reading.door}, {reading.run}, is not in the ledger", (str(reading),))
        else:
            yield from _compare(reading, run, texts.get(run.turn_id or "", []))


def _compare(reading: DoorReading, run: Run, responses: list[str]) -> Iterator[Violation]:
    evidence = (str(reading), str(run), str(responses))
    if _STATUSES.get(reading.status) != run.status:
        yield Violation("I1", f"{reading.door} got {reading.status}, the ledger has {run.status}", evidence)
    wanted = (run.result_text or "") if reading.door in _LAST_ONLY else "".join(responses)
    if run.status == "succeeded" and reading.text != wanted:
        yield Violation("I7", f"{reading.door} of {run.id} has another text than the ledger", evidence)
    for what in reading.twice:
        yield Violation("I7", f"{reading.door} of {run.id}: {what}", evidence)
