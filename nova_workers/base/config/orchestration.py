"""The settings of orchestrations."""

from nova_workers.base.config.forms import Count, Seconds
from nova_workers.base.config.sections import Section


class OrchestrationSettings(Section):
    """Agents that run agents: what is known and learned about their models."""

    model_discovery: bool = True
    """Whether workers add, once a day, models that their machine's programs (Codex, Gemini CLI, Claude Code) know to
    the configurations of tenants that have one. What a person set is never changed."""
    update_clis: bool = False
    """Whether these programs are updated first: that changes the machine."""
    probe_providers: bool = True
    """Whether workers try every 30 s which providers answer; otherwise settings alone decide which can be had."""
    rankings_every_s: Seconds = 86_400.0
    """How old a tenant's rankings of models may be before they are computed again; checked every hour."""
    rankings_days: Count = 90
    """How far back runs count."""
