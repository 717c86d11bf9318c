"""The budget of an orchestration during a turn of one of its agents: warnings, the end, and the last call.

Children end when the budget is spent. The master has one call more, to sum up what they found.
"""

from __future__ import annotations

from typing import Final

from nova_workers.base.vocabulary import Limit
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.orchestration import OrchestrationLimits, OrchestrationPlace, TreeSpending
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.runs import Claim
from nova_workers.domain.orchestrations.sql.budgets import report_used, take_last_call
from nova_workers.domain.orchestrations.sql.open_trees import tree_spending
from nova_workers.ledger.database import Connection

_WARNINGS: Final = (
    (80, "Finish what matters most, start nothing new, and sum up in time."),
    (50, "Plan the rest of the work with what is left."),
)
"""From how many percent an agent is warned, and what it is to do."""
_LAST_CALL: Final = (
    "The budget of this orchestration is spent. This is your last call: use no tool but task_complete, and sum up what "
    "was done and found, and what is missing."
)


class TreeBudget:
    """What a turn knows of the budget of its orchestration.

    Attributes:
        reached: The budget that is spent.
        sums_up: Whether the turn is to stop for its last call.
        is_last_call: Whether the next call is that one.
    """

    def __init__(self, claim: Claim, place: OrchestrationPlace) -> None:
        self._claim = claim
        self._place = place
        self._warned_percent = 0
        self._latest: str | None = None
        self._notes: list[str] = []
        self.reached: Limit | None = None
        self.sums_up = False
        self.is_last_call = False

    @property
    def stops(self) -> bool:
        """Whether the model is not called again in this turn, unless it sums up."""
        return self.reached is not None and not self.is_last_call

    def begin_last_call(self, reached: Limit | None) -> None:
        """Take note that the next call of the model is the last one, since a budget is spent."""
        self.reached, self.sums_up, self.is_last_call = reached, False, True
        self._latest = _LAST_CALL
        self._notes = [_LAST_CALL]

    def resume(self, spent: TreeSpending) -> None:
        """Warn, before the next call of the model, in a turn that continues from the journal of a former attempt."""
        percent = self._place.limits.used_percent(spent)
        due = next((each for each in _WARNINGS if each[0] <= percent), None)
        if due is not None:
            self._warn(percent, spent, *due)

    def repeat(self) -> None:
        """Repeat the latest note, since the conversation begins again with the journal, which has no notes."""
        self._notes = [] if self._latest is None else [self._latest]

    async def look(self, connection: Connection, next_step: int) -> TreeNews | None:
        """Compare what the tree has used with its budget, after a step. Return an event of what is reached first now.

        A statement for each step of agents with a budget, and two more where a warning is due.
        """
        place = self._place
        spent = await tree_spending(connection, place.orchestration_id)
        self.reached = place.limits.reached(spent)
        if self.reached is not None:
            self.sums_up = not self.is_last_call and await may_sum_up(connection, self._claim, next_step)
            return None
        percent = place.limits.used_percent(spent)
        due = next(((least, advice) for least, advice in _WARNINGS if self._warned_percent < least <= percent), None)
        if due is None:
            return None
        used = self._warn(percent, spent, *due)
        return await report_used(connection, place.orchestration_id, f"{used}.", percent=due[0])

    def _warn(self, percent: float, spent: TreeSpending, least: int, advice: str) -> str:
        """Add a warning to the notes, and return what it says is used."""
        self._warned_percent = least
        used = f"{percent:.0f} % of the budget of this orchestration ({_budget(self._place.limits, spent)}) is used"
        self._latest = f"{used}, by all agents together. {advice}"
        self._notes = [self._latest]
        return used

    def take_notes(self) -> tuple[Message, ...]:
        """Return the notes for the model before its next call. They are not kept: the next attempt warns again."""
        notes, self._notes = self._notes, []
        return tuple(Message("user", (text_block(note),)) for note in notes)


def is_master(claim: Claim) -> bool:
    """Return whether a run is of the master of an orchestration."""
    return claim.place is not None and claim.place.parent_id is None


async def may_sum_up(connection: Connection, claim: Claim, step: int) -> bool:
    """Return whether a turn may call the model without budget for this step: the master's, once, if it has begun."""
    if claim.place is None or not is_master(claim) or step == 0:
        return False
    text = "The budget is spent; the master sums up with one call more."
    return await take_last_call(connection, claim.place.orchestration_id, text, turn_id=claim.turn_id, step=step)


def _budget(limits: OrchestrationLimits, spent: TreeSpending) -> str:
    parts: list[str] = []
    if limits.token_budget is not None:
        parts.append(f"{spent.tokens:,} of {limits.token_budget:,} tokens")
    if limits.cost_budget_usd is not None:
        parts.append(f"${spent.cost_usd:.2f} of ${limits.cost_budget_usd:.2f}")
    return ", ".join(parts)
