"""What may be spent in a day, and what was."""

from datetime import datetime
from typing import Literal

from pydantic import computed_field

from nova_workers.contracts.bodies import View

__all__ = ["BudgetView", "BudgetsView"]


class BudgetView(View):
    """A bound on what a day costs, and how far it is used up."""

    kind: Literal["tenant", "agent", "trigger"]
    id: str
    name: str | None = None
    max_usd: float | None
    """Null: the tenant has none."""
    spent_usd: float
    """Of runs that ended today, and of those that run so far. What has no known price counts as nothing."""

    @computed_field
    @property
    def left_usd(self) -> float | None:
        """What is left of it; null without a bound."""
        return None if self.max_usd is None else max(self.max_usd - self.spent_usd, 0.0)


class BudgetsView(View):
    """A tenant's daily budgets: its own first, then those of agents and triggers that have one."""

    timezone: str
    """Whose days are meant."""
    resets_at: datetime
    """When the next day begins."""
    items: list[BudgetView]
