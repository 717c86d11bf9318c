"""What an agent is: configuration, never code."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

__all__ = [
    "AGENT_ID_PATTERN",
    "AgentId",
    "AgentSpec",
    "CapabilityGrant",
    "CommandPattern",
    "Permissions",
    "Responsibility",
    "SubagentName",
    "SubagentSpec",
]

AGENT_ID_PATTERN = r"^[a-z0-9][a-z0-9-]*$"

AgentId = Annotated[str, StringConstraints(pattern=AGENT_ID_PATTERN, min_length=1, max_length=64)]
"""Lower case letters, digits and hyphens; unique within a tenant."""

SubagentName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_-]*$", max_length=64)]
"""Unique within an agent."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Responsibility(_Value):
    """One duty of an agent. The title is unique within the agent."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    content: Annotated[str, Field(max_length=20_000)]


class CapabilityGrant(_Value):
    """One capability that the agent has: which of its tools, and its configuration."""

    tools: tuple[str, ...] | None = None
    """Allow-list; None allows every tool that the capability declares."""
    config: dict[str, Any] = Field(default_factory=dict[str, Any])


CommandPattern = Annotated[
    str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00\r\n]*[^\x00\s][^\x00\r\n]*$")
]
"""The form of a shell command: ``*`` is any text, ``?`` any character, ``[abc]`` one of these. One line."""

CommandPatterns = Annotated[tuple[CommandPattern, ...], Field(max_length=200)]


class Permissions(_Value):
    """Which shell commands an agent may run, where its trust lets it run any.

    A pattern is compared with the whole line and with each simple command in it. Deny goes before ask, ask before
    allow. A line is allowed by patterns only if each of its commands is, and it hides nothing: no substitution,
    expansion, redirection or escape.
    """

    allow_commands: CommandPatterns = ()
    deny_commands: CommandPatterns = ()
    ask_commands: CommandPatterns = ()
    """A person decides. As long as nobody can be asked, they are refused."""
    unlisted_commands: Literal["allow", "ask", "deny"] = "allow"
    """What becomes of a command that no pattern matches."""


class SubagentSpec(_Value):
    """A helper that the agent may give a task to. It works on its own and reports back."""

    description: Annotated[str, Field(min_length=1, max_length=2_000)]
    """When to call it, for the model."""
    prompt: Annotated[str, Field(min_length=1, max_length=200_000)]
    tools: tuple[str, ...] | None = None
    """Allow-list of the agent's tools, by the names that the model knows them by; None allows all."""
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """An alias or a full id; None takes the agent's."""
    max_turns: Annotated[int, Field(ge=1, le=1_000)] = 20


class AgentSpec(_Value):
    """An agent's whole configuration; what a version of it freezes."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=2_000)] = ""
    identity: Annotated[str, Field(max_length=100_000)] = ""
    instructions: Annotated[str, Field(max_length=200_000)] = ""
    responsibilities: tuple[Responsibility, ...] = ()
    directories: tuple[str, ...] = ()
    capabilities: dict[str, CapabilityGrant] = Field(default_factory=dict[str, CapabilityGrant])
    trust: Literal["sandbox", "controlled", "unrestricted"] = "sandbox"
    permissions: Permissions = Field(default_factory=Permissions)
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """An alias or a full id; None takes the fleet's default."""
    engine: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """None takes the fleet's default."""
    engine_config: dict[str, Any] = Field(default_factory=dict[str, Any])
    max_turns: Annotated[int, Field(ge=1, le=1_000)] | None = None
    subagents: Annotated[dict[SubagentName, SubagentSpec], Field(max_length=50)] = Field(
        default_factory=dict[str, SubagentSpec]
    )
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most tokens of one model response; None takes the fleet's default."""
    thinking_budget_tokens: Annotated[int, Field(ge=1_024, le=1_000_000)] | None = None
    """Lets the model think before it answers. Models that decide themselves how much take it as a yes."""
    token_budget: Annotated[int, Field(ge=1)] | None = None
    """Most tokens, read and produced, that one turn may use."""
    cost_budget_usd: Annotated[float, Field(gt=0)] | None = None
    """Most that one turn may cost."""
    output_schema: dict[str, Any] | None = None
    """JSON schema that the final answer of each turn must fulfil."""
