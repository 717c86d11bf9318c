"""I9: the answer to a request that was sent once says what is true: it is done, it is not, or it is not known."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.checker.ledger import Ledger
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History, Once


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Compare each answer with what the ledger had once every fault was removed."""
    for once in history.once:
        problem = _problem(once)
        if problem is not None:
            faults = tuple(str(each) for each in history.faults if each.began_at <= once.at)
            yield Violation("I9", f"{once.action} of {once.mark}: {problem}", (str(once), *faults[-2:]))


def _problem(once: Once) -> str | None:
    if once.status < 400:
        return None if once.is_done else "it was answered as done, and is not"
    if once.code == "outcome_unknown":
        return None if once.look_up else "its outcome is not known, and the answer names nothing to look at"
    return "it was answered as not done, and it is" if once.is_done else None
