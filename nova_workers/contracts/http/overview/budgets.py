"""The HTTP contract of daily budgets and spending."""

from datetime import datetime
from typing import Literal

from pydantic import computed_field

from nova_workers.contracts.bodies import View


class BudgetView(View):
    """A daily spending limit and its use."""

    kind: Literal["tenant", "ceiling", "agent", "trigger"]
    """`ceiling`: of the tenant, set by an operator, over the last 24 hours instead of the day."""
    id: str
    name: str | None = None
    max_usd: float | None
    """Null: the tenant has no limit."""
    spent_usd: float
    """Cost of runs that ended today and, so far, of those that are running. Usage without a known price counts as 0."""

    @computed_field
    @property
    def left_usd(self) -> float | None:
        """The remaining amount; null without a limit."""
        return None if self.max_usd is None else max(self.max_usd - self.spent_usd, 0.0)


class BudgetsView(View):
    """A tenant's daily budgets: its own, the operator's ceiling, then those of agents and triggers that have one."""

    timezone: str
    """The time zone that defines the days."""
    resets_at: datetime
    """When the next day begins."""
    items: list[BudgetView]
