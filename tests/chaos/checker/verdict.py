"""What the checker finds."""

from __future__ import annotations

from dataclasses import dataclass

Invariant = str

INVARIANTS: dict[Invariant, str] = {
    "I1": "each accepted message has one run, one outcome with a reason, its whole answer, and consistent rows",
    "I2": "runs of a thread do not overlap, and begin in their order",
    "I3": "no write and no event of an earlier attempt comes after a later one began",
    "I4": "nothing waits longer than the bound while no fault is active",
    "I5": "effects, deliveries and firings happen as promised",
    "I6": "a tool that is not idempotent is executed once",
    "I7": "a follower that obeys the client rules ends with the ledger's text, by ids that strictly grow",
    "I8": "a steering message is answered once",
    "I9": "no process of the fleet exits unexpectedly, no response is a 500, and none disagrees with the ledger",
}


@dataclass(frozen=True)
class Violation:
    """One broken promise, with the lines and rows that show it."""

    invariant: Invariant
    what: str
    evidence: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = "".join(f"\n      {line}" for line in self.evidence)
        return f"{self.invariant}: {self.what}{lines}"
