"""The HTTP contract of usage reports."""

from datetime import datetime
from typing import Literal

from nova_workers.contracts.bodies import View

MAX_USAGE_DAYS = 400
"""Longest period of one report."""

UsageGrouping = Literal["agent", "day", "model"]


class UsageSum(View):
    """The usage of one agent, day or model, or the total."""

    key: str | None = None
    """The agent's id, the day (``2026-01-31``) or the model's id. Null for the total, for runs in which no model
    answered, and by agent for judgements of models, which belong to none."""
    runs: int = 0
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    """The sum of the known costs; null if none is known."""
    unpriced: int = 0
    """Runs, compactions and judgements of unknown cost, which `cost_usd` does not include."""


class UsageReport(View):
    """A tenant's usage from `since` (inclusive) until `until` (exclusive)."""

    group_by: UsageGrouping
    since: datetime
    until: datetime
    timezone: str
    """The time zone that defines the days."""
    groups: list[UsageSum]
    """Days in order from the newest; agents and models from the most expensive."""
    groups_total: int
    """Number of all groups; `groups` has at most `limit` of them."""
    total: UsageSum
