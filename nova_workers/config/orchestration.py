"""The settings of orchestrations."""

from nova_workers.config.sections import Count, Seconds, Section

__all__ = ["OrchestrationSettings"]


class OrchestrationSettings(Section):
    """Agents that run agents: what is learned about their models."""

    rankings_every_s: Seconds = 86_400.0
    """How old a tenant's rankings of models may be before they are computed again; looked at every hour."""
    rankings_days: Count = 90
    """How far back runs count."""
