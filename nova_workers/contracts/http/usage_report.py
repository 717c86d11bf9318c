"""What was used, summed up."""

from datetime import datetime
from typing import Literal

from nova_workers.contracts.bodies import View

__all__ = ["MAX_USAGE_DAYS", "UsageGrouping", "UsageReport", "UsageSum"]

MAX_USAGE_DAYS = 400
"""Longest time that one report sums up."""

UsageGrouping = Literal["agent", "day", "model"]


class UsageSum(View):
    """What one agent, day or model used, or all."""

    key: str | None = None
    """The agent's id, the day (``2026-01-31``) or the model's id. Null for the total, and where no model is known since
    none answered."""
    runs: int = 0
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    """The sum of the costs that are known; null where none is."""
    unpriced: int = 0
    """Runs and compactions whose cost is not known, and not in `cost_usd`."""


class UsageReport(View):
    """What a tenant used from `since` on and before `until`."""

    group_by: UsageGrouping
    since: datetime
    until: datetime
    timezone: str
    """Whose days are meant."""
    groups: list[UsageSum]
    """Days from the newest; agents and models from the most costly."""
    groups_total: int
    """How many there are; `groups` has as many of them as `limit` lets it."""
    total: UsageSum
