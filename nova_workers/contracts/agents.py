"""What an agent is: configuration, never code."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from nova_workers.contracts.skills import SkillNames
from nova_workers.vocabulary import TrustLevel

__all__ = [
    "AGENT_ID_PATTERN",
    "ENGINE_NAMES",
    "MAX_RESPONSIBILITIES",
    "AgentId",
    "AgentSpec",
    "ApprovalRule",
    "CapabilityGrant",
    "CommandPattern",
    "Permissions",
    "Responsibility",
    "SubagentName",
    "SubagentSpec",
    "ThreadRetention",
]

AGENT_ID_PATTERN = r"^[a-z0-9][a-z0-9-]*$"

ENGINE_NAMES = ("anthropic", "claude_agent", "scripted")
"""Engines that a worker may have. Which of them it has depends on what is installed, and on its environment."""

MAX_RESPONSIBILITIES = 100
"""All of them stand in every prompt of the agent."""

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


class ApprovalRule(_Value):
    """Who decides over the calls of a tool: nobody needs to (always), a person (ask), or this rule (never).

    ``*`` is any text, ``?`` any character, ``[abc]`` one of these.
    """

    tool: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x20]+$")]
    """Which tools, by the names that the model knows them by: ``Bash``, ``note_*``, ``mcp__*``."""
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] | None = None
    """Which calls: compared with the call's main text, such as a command, path or address, and with its arguments as
    JSON. A shell command is compared as `Permissions` says. None is every call."""
    decision: Literal["always", "ask", "never"]


class Permissions(_Value):
    """Which tools an agent may use without asking, and which shell commands, where its trust lets it run any.

    `approvals` are looked at first, and the first that fits decides. What it allows is still refused where a command
    is denied.

    A pattern of a command is compared with the whole line and with each simple command in it. Deny goes before ask,
    ask before allow. A line is allowed by patterns only if each of its commands is, and it hides nothing: no
    substitution, expansion, redirection or escape.
    """

    approvals: Annotated[tuple[ApprovalRule, ...], Field(max_length=100)] = ()
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


class ThreadRetention(_Value):
    """What becomes of the agent's threads that nobody has used for a while."""

    after_days: Annotated[int, Field(ge=1, le=36_500)]
    """Since the last message or answer."""
    keep: Literal["none", "latest"]
    """``none`` deletes the thread for good; ``latest`` all but its latest turn, from which it goes on."""


class AgentSpec(_Value):
    """An agent's whole configuration; what a version of it freezes."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=2_000)] = ""
    identity: Annotated[str, Field(max_length=100_000)] = ""
    instructions: Annotated[str, Field(max_length=200_000)] = ""
    responsibilities: Annotated[tuple[Responsibility, ...], Field(max_length=MAX_RESPONSIBILITIES)] = ()
    directories: Annotated[tuple[Annotated[str, Field(max_length=4_096)], ...], Field(max_length=50)] = ()
    """Absolute paths on the workers that the agent's file tools reach beside its own working directory."""
    capabilities: Annotated[dict[str, CapabilityGrant], Field(max_length=100)] = Field(
        default_factory=dict[str, CapabilityGrant]
    )
    skills: SkillNames = ()
    """Of the tenant's library."""
    trust: TrustLevel = "sandbox"
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
    temperature: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """How freely the model chooses its words: 0 is the likeliest, 1 the freest. None is the provider's default. Not
    beside `thinking_budget_tokens`, and not for engines and models that take none."""
    thinking_budget_tokens: Annotated[int, Field(ge=1_024, le=1_000_000)] | None = None
    """Lets the model think before it answers. Models that decide themselves how much take it as a yes."""
    token_budget: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Most tokens, read and produced, that one turn may use."""
    cost_budget_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Most that one turn may cost."""
    timeout_s: Annotated[int, Field(ge=1, le=2_592_000)] | None = None
    """Most seconds that one run may take from its first start, over all attempts. The time in which it waits for
    somebody or something does not count."""
    max_running: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Most runs of this agent at once, on all workers together. None is as many as there is room for."""
    max_cost_usd_per_day: Annotated[float, Field(gt=0, le=1_000_000_000, allow_inf_nan=False)] | None = None
    """Most that its runs may cost in a day of its tenant's time zone."""
    output_schema: dict[str, Any] | None = None
    """JSON schema that the final answer of each turn must fulfil."""
    retention: ThreadRetention | None = None
    """None keeps its threads."""
