"""I6: a tool that is not idempotent is executed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.chaos.checker.ledger import Ledger
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Compare the executions that the tool's server recorded with the calls in the ledger."""
    executed = Counter(tool.key for tool in history.tools)
    calls = {call.key: call for call in ledger.calls if call.key is not None}
    for key, times in executed.items():
        if times > 1:
            runs = tuple(str(tool) for tool in history.tools if tool.key == key)
            yield Violation("I6", f"{key} was executed {times} times", (*runs, str(calls.get(key))))
        if key not in calls:
            yield Violation("I6", f"{key} was executed without a call in the ledger", ())
    for key, call in calls.items():
        if call.status == "completed" and key not in executed:
            yield Violation("I6", f"{key} is completed and was never executed", (str(call),))
