"""The limits of a new orchestration: those of its configuration, or lower ones."""

from __future__ import annotations

from nova_workers.contracts.http.orchestrations import OrchestrationCreate
from nova_workers.contracts.orchestration import OrchestrationLimits
from nova_workers.errors import InvalidInput
from nova_workers.orchestration.config.values import OrchestrationConfig

__all__ = ["limits_of", "narrowed_limits"]


def limits_of(config: OrchestrationConfig) -> OrchestrationLimits:
    """Return the limits that a configuration sets."""
    engine = config.engine
    return OrchestrationLimits(
        max_agent_depth=engine.max_agent_depth,
        max_concurrent_agents=engine.max_concurrent_agents,
        agent_timeout_seconds=engine.agent_timeout_seconds,
        tool_call_timeout_seconds=engine.tool_call_timeout_seconds,
    )


def narrowed_limits(config: OrchestrationConfig, wanted: OrchestrationCreate) -> OrchestrationLimits:
    """Return the limits of a new orchestration: its own budgets, and bounds that may be lower than the configuration's.

    Raises:
        InvalidInput: A bound is higher than the configuration permits.
    """
    limits = limits_of(config)
    budgets = wanted.model_dump(include={"token_budget", "cost_budget_usd", "time_budget_s"})
    bounds = wanted.model_dump(include=set(OrchestrationLimits.model_fields), exclude=set(budgets), exclude_none=True)
    for field_name, bound in bounds.items():
        if bound > (highest := getattr(limits, field_name)):
            raise InvalidInput(
                f"{field_name}: {bound!r} is more than the configuration permits, {highest:g}. Give a lower one, or "
                "change `engine` with PUT /v1/orchestrations/config.",
                field=field_name,
            )
    return limits.model_copy(update={**budgets, **bounds})
