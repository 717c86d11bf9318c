"""What a model call may produce, by the budgets that its run shares with others."""

from __future__ import annotations

import pytest

from nova_workers.contracts.orchestration import TreeSpending
from nova_workers.contracts.usage import CallBound, TokenPrice, most_tokens
from nova_workers.domain.runs.rules.turns.budgets import granted_tokens
from nova_workers.domain.usage.sql.budgets import SharedBudget

_BOUND = CallBound("m", 1_000, 8_000, 1_000, TokenPrice(0.001, 0.001))
"""It may cost 9 dollars, and at least 2."""
_NOTHING = TreeSpending(0, 0.0)


def _usd(most: float, *, spent: float = 0.0, reserved: float = 0.0) -> SharedBudget:
    return SharedBudget("ceiling", most, spent, reserved)


@pytest.mark.parametrize(
    ("budget", "granted", "waits"),
    [
        (_usd(9), 8_000, False),
        (_usd(10, spent=1), 8_000, False),
        (_usd(20, reserved=11), 8_000, False),
        # The budget itself leaves less.
        (_usd(9, spent=2), 6_000, False),
        (_usd(2), 1_000, False),
        (_usd(1.9), None, False),
        (_usd(9, spent=8), None, False),
        # Others' calls leave less, and may end with less than they reserved.
        (_usd(9, reserved=1), None, True),
        (_usd(9, spent=6, reserved=1), None, True),
        # Waiting would not help.
        (_usd(9, spent=8, reserved=1), None, False),
        (SharedBudget("orchestration", 9_000, 0, 0, in_tokens=True), 8_000, False),
        (SharedBudget("orchestration", 9_000, 2_000, 0, in_tokens=True), 6_000, False),
        (SharedBudget("orchestration", 9_000, 0, 2_000, in_tokens=True), None, True),
        (SharedBudget("orchestration", 9_000, 7_500, 500, in_tokens=True), None, False),
    ],
)
def test_a_call_gets_what_the_budget_leaves_waits_for_others_or_is_refused(
    budget: SharedBudget, granted: int | None, waits: bool
) -> None:
    answer = granted_tokens(_BOUND, _NOTHING, [_usd(1_000), budget])
    assert (answer.output_tokens, answer.waits) == (granted, waits)
    if granted != _BOUND.output_tokens and not waits:
        assert answer.binding is budget


def test_what_the_turn_has_not_committed_counts() -> None:
    assert granted_tokens(_BOUND, TreeSpending(500, 3.0), [_usd(10)]).output_tokens == 6_000
    tokens = SharedBudget("orchestration", 9_500, 0, 0, in_tokens=True)
    assert granted_tokens(_BOUND, TreeSpending(500, 3.0), [tokens]).output_tokens == 8_000


def test_what_costs_nothing_is_granted_in_whole() -> None:
    free = CallBound("m", 1_000, 8_000, 1_000, TokenPrice(0.0, 0.0))
    assert granted_tokens(free, _NOTHING, [_usd(1, spent=1)]).output_tokens == 8_000


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("abc", 2), ("你好", 6), ("aß", 3)])
def test_a_text_has_at_most_so_many_tokens(text: str, tokens: int) -> None:
    assert most_tokens(text) == tokens
