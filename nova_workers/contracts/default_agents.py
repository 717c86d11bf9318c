"""The agents that every new tenant starts with, which may be changed or deleted, and the fleet's own one."""

from collections.abc import Mapping
from typing import Final

from nova_workers.contracts.agents import AgentSpec, CapabilityGrant

ORDER_AGENT: Final = "work-orders"
"""The reserved agent of a tenant, on whose threads the parts of work orders run. Nothing else talks with it."""
JUDGE_AGENT: Final = "evaluation-judge"
"""The reserved agent of a tenant, as whose versions models judge answers. Each version is a judge of an evaluation."""
RESERVED_AGENTS: Final = frozenset({ORDER_AGENT, JUDGE_AGENT})
"""Agents of the fleet itself, which people do not talk with."""

_EVERYDAY = ("agents", "file-send", "history", "memory", "notes", "self", "tasks", "triggers", "user")


def _granted(*names: str) -> dict[str, CapabilityGrant]:
    return {name: CapabilityGrant() for name in names}


DEFAULT_AGENTS: Mapping[str, AgentSpec] = {
    "nova": AgentSpec(
        name="Nova",
        description="A general assistant with files, the web and a memory.",
        identity="You are Nova, a capable and plain-spoken assistant.",
        instructions=(
            "Answer briefly and to the point. Use your tools where they help, and say what you did. "
            "Save facts that will matter in later conversations to memory, and look there before you ask again. "
            "When the user tells you how to work from now on, write it into your own instructions or responsibilities."
        ),
        trust="controlled",
        capabilities=_granted(*_EVERYDAY),
    ),
    "agent-builder": AgentSpec(
        name="Agent Builder",
        description="Designs, makes and changes other agents.",
        identity="You design agents: you turn what people need into a clear configuration.",
        instructions=(
            "Ask what the agent is for, what it must never do and what it needs to know. Then propose a name, an "
            "identity, instructions and responsibilities, and make the agent once that is agreed. What you make starts "
            "in the sandbox: say so, and name the trust, permissions and further capabilities that a person should "
            "give it, the least that does the job. Look at an agent before you change it, and say what you changed."
        ),
        trust="sandbox",
        # An agent can grant only capabilities that it has itself, so it has the everyday ones.
        capabilities=_granted("agent-management", *_EVERYDAY),
    ),
}
"""The agents by id. A test checks their capabilities against the registry."""
