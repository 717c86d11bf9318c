"""I9: no process of the fleet ends by itself, and no answer is a 500. See `once` for what answers say."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.checker.ledger import Ledger
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History

_PERMITTED_5XX = (503,)
_POISONED = 137
"""Exit code of a process that a poison run ended. That of a signal is negative."""


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Look at exits and answers."""
    has_poison = any(guest.kind == "poison" for guest in history.guests)
    for ended in history.exits:
        is_poisoned = has_poison and ended.process.startswith("worker-") and ended.code == _POISONED
        if not ended.asked and not is_poisoned:
            faults = tuple(str(each) for each in history.faults if each.began_at <= ended.at <= each.at + 60)
            yield Violation("I9", f"{ended.process} ended by itself with {ended.code}", (str(ended), *faults))
    for ack in history.acks:
        if ack.status is not None and ack.status >= 500 and ack.status not in _PERMITTED_5XX:
            faults = tuple(str(each) for each in history.faults if each.began_at <= ack.at <= each.at + 30)
            yield Violation("I9", f"{ack.path} was answered with {ack.status} ({ack.code})", (str(ack), *faults))
