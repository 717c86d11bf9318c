"""Descriptions of agents for other agents."""

from collections.abc import Mapping

from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.http.wire import AgentView

_DEFAULT = "the fleet's default"


def describe_agent(agent: AgentView) -> str:
    """Return an agent's configuration as text, without the content of its responsibilities."""
    spec = agent.spec
    lines = {
        "id": agent.id,
        "version": f"{agent.version}, made by {agent.created_by} at {agent.updated_at:%Y-%m-%d %H:%M} UTC",
        "name": spec.name,
        "description": spec.description,
        "trust": spec.trust,
        "model": spec.model or _DEFAULT,
        "engine": spec.engine or _DEFAULT,
        "capabilities": _grants(spec.capabilities),
        "skills": ", ".join(spec.skills),
        "subagents": ", ".join(spec.subagents),
        "directories": ", ".join(spec.directories),
        "responsibilities": "; ".join(duty.title for duty in spec.responsibilities),
    }
    words = "\n".join(f"{name}: {value or 'none'}" for name, value in lines.items())
    return f"{words}\n\nIdentity:\n{spec.identity or 'none'}\n\nInstructions:\n{spec.instructions or 'none'}"


def describe_duties(spec: AgentSpec) -> str:
    """Return an agent's responsibilities with their content: for itself only."""
    if not spec.responsibilities:
        return "No responsibilities."
    return "Responsibilities:\n\n" + "\n\n".join(f"# {duty.title}\n{duty.content}" for duty in spec.responsibilities)


def _grants(grants: Mapping[str, CapabilityGrant]) -> str:
    # Without configurations: they may name hosts, programs and secrets.
    return ", ".join(
        name if grant.tools is None else f"{name} (only {', '.join(grant.tools) or 'no tool'})"
        for name, grant in grants.items()
    )
