"""The bounds of an orchestration, and what it has used of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.base.vocabulary import Limit
from nova_workers.contracts.usage import TokenUsage


@dataclass(frozen=True, slots=True)
class TreeSpending:
    """What all agents of an orchestration have used so far."""

    tokens: int
    cost_usd: float

    @classmethod
    def of(cls, usage: TokenUsage) -> TreeSpending:
        """Return the spending of model calls. An unknown cost is counted as none, as in the sums of the ledger."""
        return cls(usage.total_tokens, usage.cost_usd or 0.0)

    def __add__(self, other: TreeSpending) -> TreeSpending:
        """Add both."""
        return TreeSpending(self.tokens + other.tokens, self.cost_usd + other.cost_usd)


class OrchestrationLimits(TrueNumbers):
    """The bounds of one orchestration. They are frozen when it starts."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    max_agent_depth: Annotated[int, Field(ge=0, le=50)] = 5
    """Levels below the master."""
    max_concurrent_agents: Annotated[int, Field(ge=1, le=1_000)] = 10
    """Agents that have not ended, waiting ones included."""
    agent_timeout_seconds: Annotated[float, Field(gt=0, le=31_536_000)] = 7_200.0
    """Reasoning time of one activation: time of model calls, without the time of tools and waits."""
    tool_call_timeout_seconds: Annotated[float, Field(gt=0, le=31_536_000)] = 7_200.0
    """Wall-clock time of one tool call."""
    master_idle_seconds: Annotated[float, Field(gt=0, le=31_536_000)] = 3_600.0
    """An external master that sends no request for this long is killed, with its tree."""
    token_budget: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Tokens, read and produced, of all agents together."""
    cost_budget_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Cost of all agents together."""
    time_budget_s: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    """Wall-clock time from the start to the master's end."""

    @property
    def has_budget(self) -> bool:
        """Whether tokens or cost are bounded."""
        return self.token_budget is not None or self.cost_budget_usd is not None

    def used_percent(self, spent: TreeSpending) -> float:
        """Return how much of the budgets of tokens and cost is used: the larger part of the two, in percent."""
        tokens = 0.0 if self.token_budget is None else spent.tokens / self.token_budget
        cost = 0.0 if self.cost_budget_usd is None else spent.cost_usd / self.cost_budget_usd
        return 100 * max(tokens, cost)

    def reached(self, spent: TreeSpending) -> Limit | None:
        """Return the budget that is spent, if one is."""
        if self.token_budget is not None and spent.tokens >= self.token_budget:
            return "tokens"
        if self.cost_budget_usd is not None and spent.cost_usd >= self.cost_budget_usd:
            return "cost"
        return None
