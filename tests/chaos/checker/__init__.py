"""The history checker: reads the record of a chaos run and the ledger's tables, and finds broken promises.

It imports nothing of the fleet, so that no error of the fleet's code is in its eyes as well.
"""

from __future__ import annotations

from tests.chaos.checker import (
    afterwards,
    answers,
    bounds,
    doors,
    guests,
    once,
    order,
    outcomes,
    service,
    steering,
    streams,
    tools,
)
from tests.chaos.checker.guests import GuestRows, load_guests
from tests.chaos.checker.ledger import Ledger, load
from tests.chaos.checker.verdict import INVARIANTS, Violation
from tests.chaos.history import History

__all__ = ["INVARIANTS", "GuestRows", "Ledger", "Violation", "load", "load_guests", "violations"]

_CHECKS = (outcomes, answers, order, bounds, afterwards, tools, streams, doors, steering, service, once)


def violations(history: History, ledger: Ledger, of_guests: GuestRows | None = None) -> list[Violation]:
    """Return every violation of an invariant."""
    found = [violation for check in _CHECKS for violation in check.check(history, ledger)]
    return found if of_guests is None else [*found, *guests.check(history, of_guests)]
