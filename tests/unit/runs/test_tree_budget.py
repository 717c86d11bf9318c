"""What a turn is to read of its orchestration's budget when its conversation begins again."""

from __future__ import annotations

from typing import Any, cast

from nova_workers.contracts.orchestration import OrchestrationLimits, OrchestrationPlace, TreeSpending
from nova_workers.domain.runs.rules.turns.budgets import TreeBudget

_PLACE = OrchestrationPlace(
    orchestration_id="orc_1",
    agent_id="oag_1",
    role="MASTER",
    depth=0,
    permission_mode="BYPASS",
    limits=OrchestrationLimits(token_budget=1_000),
)


def _budget() -> TreeBudget:
    # A claim is for the ledger only.
    return TreeBudget(cast(Any, None), _PLACE)


def _read(budget: TreeBudget) -> list[str]:
    return [str(note.content[0]["text"]) for note in budget.take_notes()]


def test_the_latest_warning_is_repeated() -> None:
    budget = _budget()
    budget.resume(TreeSpending(600, 0.0))
    (warned,) = _read(budget)
    assert warned.startswith("60 % of the budget of this orchestration (600 of 1,000 tokens) is used")
    budget.repeat()
    assert _read(budget) == [warned]
    assert _read(budget) == [], "once for each beginning"


def test_a_last_call_that_is_made_again_is_still_announced_as_the_last_one() -> None:
    budget = _budget()
    budget.resume(TreeSpending(600, 0.0))
    budget.begin_last_call("tokens")
    (last,) = _read(budget)
    assert "This is your last call" in last
    # Its conversation did not fit the context window, and was compacted.
    budget.repeat()
    assert _read(budget) == [last]
