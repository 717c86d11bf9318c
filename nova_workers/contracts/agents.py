"""What an agent is (configuration, never code), and what its tenant may give it at most."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool, StringConstraints

from nova_workers.base.field_docs import DescribedFields
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.base.vocabulary import KeptTurns, TrustLevel
from nova_workers.contracts.authors.rights import (
    BOUND,
    CEILING_ENGINE,
    DIRECTORIES,
    FREE,
    GRANT,
    PARTS,
    STEERS,
    TRUST,
    authored,
)
from nova_workers.contracts.skills import SkillNames

AGENT_ID_PATTERN = r"^[a-z0-9][a-z0-9-]*$"

MAX_RESPONSIBILITIES = 100
"""Every prompt of the agent contains all of them."""

AgentId = Annotated[str, StringConstraints(pattern=AGENT_ID_PATTERN, min_length=1, max_length=64)]
"""Lower case letters, digits and hyphens; unique within a tenant."""

SubagentName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_-]*$", max_length=64)]
"""Unique within an agent."""


class _Value(DescribedFields, TrueNumbers):
    """The docstrings below fields are their descriptions in the API's document, and in the form of the console."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")


@authored(
    title=STEERS,
    content=STEERS,
)
class Responsibility(_Value):
    """One duty of an agent. The title is unique within the agent."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    """One line; other agents see only this."""
    content: Annotated[str, Field(max_length=20_000)]
    """What the agent does about it. Markdown."""


@authored(
    tools=STEERS,
    config=GRANT,
)
class CapabilityGrant(_Value):
    """A capability granted to the agent: which of its tools, and its configuration."""

    tools: tuple[str, ...] | None = None
    """Allow-list; null allows every tool that the capability declares."""
    config: dict[str, Any] = Field(default_factory=dict[str, Any])
    """The capability's own configuration."""


CommandPattern = Annotated[
    str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00\r\n]*[^\x00\s][^\x00\r\n]*$")
]
"""The form of a shell command: ``*`` is any text, ``?`` any character, ``[abc]`` one of these. One line."""

CommandPatterns = Annotated[tuple[CommandPattern, ...], Field(max_length=200)]


ArgumentPath = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\s.]+(?:\.[^\s.]+)*$")]
"""Where an argument is: names and positions with dots between, as in ``issue.labels.0``."""

ArgumentPattern = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


@authored(
    tool=STEERS,
    pattern=STEERS,
    arguments=STEERS,
    decision=STEERS,
)
class ApprovalRule(_Value):
    """Whether a tool's calls are allowed (always), need a person's approval (ask), or are refused (never).

    ``*`` is any text, ``?`` any character, ``[abc]`` one of these.
    """

    tool: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x20]+$")]
    """Which tools, by the names that the model sees: ``Bash``, ``note_*``, ``mcp__*``."""
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] | None = None
    """Which calls, by the main text: the path of a file tool, an address, a query; of other tools the only text.
    ``ask`` and ``never`` look at all arguments as JSON, too. A shell command is compared as `Permissions` says. Null is
    every call."""
    arguments: Annotated[dict[ArgumentPath, ArgumentPattern], Field(min_length=1, max_length=20)] | None = None
    """Which calls, by single arguments: each path must be there, and its value fit its pattern. Numbers, booleans and
    null are compared as JSON. For ``always``, lists and objects fit nothing."""
    decision: Literal["always", "ask", "never"]
    """Allowed, a person decides, or refused."""


@authored(
    approvals=PARTS,
    allow_commands=STEERS,
    deny_commands=STEERS,
    ask_commands=STEERS,
    unlisted_commands=STEERS,
)
class Permissions(_Value):
    """Which tools and shell commands an agent may use without approval. Trust decides whether it has a shell.

    `approvals` are evaluated first, and the first match decides. A call that it allows is still refused if a command is
    denied.

    A command pattern is compared with the whole line and with each simple command in it. Deny takes precedence over
    ask, and ask over allow. Patterns allow a line only if they allow each of its commands, and the line has no
    substitution, expansion, redirection or escape. A line that cannot be read as bash is asked about if there are deny
    or ask patterns.
    """

    approvals: Annotated[tuple[ApprovalRule, ...], Field(max_length=100)] = ()
    """Rules for calls of any tool. The first match decides; a call without a match is allowed."""
    allow_commands: CommandPatterns = ()
    """Shell commands that need no approval, such as ``git status*``."""
    deny_commands: CommandPatterns = ()
    """Shell commands that are refused."""
    ask_commands: CommandPatterns = ()
    """Shell commands that a person decides about. Where no person can be asked, they are refused."""
    unlisted_commands: Literal["allow", "ask", "deny"] = "allow"
    """The decision for a command that no pattern matches."""


@authored(
    description=STEERS,
    prompt=STEERS,
    tools=STEERS,
    model=STEERS,
    max_turns=BOUND,
)
class SubagentSpec(_Value):
    """A subagent to which the agent may give a task. It works on its own and reports back."""

    description: Annotated[str, Field(min_length=1, max_length=2_000)]
    """When to call it; the model reads this."""
    prompt: Annotated[str, Field(min_length=1, max_length=200_000)]
    """Its instructions."""
    tools: tuple[str, ...] | None = None
    """Allow-list of the agent's tools, by the names that the model sees; null allows all."""
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """An alias or a full id; null takes the agent's."""
    max_turns: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Limit of model calls in one task."""


@authored(
    after_days=BOUND,
    keep=BOUND,
)
class ThreadRetention(_Value):
    """What happens to the agent's threads after a time without use."""

    after_days: Annotated[int, Field(ge=1, le=36_500)]
    """Since the last message or answer."""
    keep: KeptTurns
    """``none`` deletes the whole thread; ``latest`` deletes all but its latest turn, from which it can continue."""


@authored(
    name=STEERS,
    description=FREE,
    identity=STEERS,
    instructions=STEERS,
    responsibilities=PARTS,
    directories=DIRECTORIES,
    capabilities=PARTS,
    skills=STEERS,
    trust=TRUST,
    native_tools=STEERS,
    permissions=PARTS,
    model=STEERS,
    engine=CEILING_ENGINE,
    engine_config=STEERS,
    max_turns=BOUND,
    subagents=PARTS,
    max_tokens=BOUND,
    temperature=BOUND,
    thinking_budget_tokens=BOUND,
    token_budget=BOUND,
    cost_budget_usd=BOUND,
    timeout_s=BOUND,
    max_running=BOUND,
    max_cost_usd_per_day=BOUND,
    output_schema=STEERS,
    retention=PARTS,
)
class AgentSpec(_Value):
    """An agent's complete configuration, as each version stores it."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """What people call it."""
    description: Annotated[str, Field(max_length=2_000)] = ""
    """What it is for; other agents read this to decide whom to ask."""
    identity: Annotated[str, Field(max_length=100_000)] = ""
    """Who it is: the first section of its prompt."""
    instructions: Annotated[str, Field(max_length=200_000)] = ""
    """How it works."""
    responsibilities: Annotated[tuple[Responsibility, ...], Field(max_length=MAX_RESPONSIBILITIES)] = ()
    """Its duties. Every prompt of it contains all of them."""
    directories: Annotated[tuple[Annotated[str, Field(max_length=4_096)], ...], Field(max_length=50)] = ()
    """Absolute paths on the workers that the agent's file tools may access besides its own working directory."""
    capabilities: Annotated[dict[str, CapabilityGrant], Field(max_length=100)] = Field(
        default_factory=dict[str, CapabilityGrant]
    )
    """Granted capabilities, by name."""
    skills: SkillNames = ()
    """Skills of the tenant's library, by name."""
    trust: TrustLevel = "sandbox"
    """Which native tools it has: none, files and the web, or a shell as well."""
    native_tools: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=50)] | None = None
    """Allow-list of native tools within its trust, such as ``Read``; null allows all of them."""
    permissions: Permissions = Field(default_factory=Permissions)
    """Which calls and shell commands are allowed, asked about or refused."""
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """An alias or a full id; null takes the fleet's default."""
    engine: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """What calls the model; null takes the fleet's default."""
    engine_config: dict[str, Any] = Field(default_factory=dict[str, Any])
    """The engine's own configuration."""
    max_turns: Annotated[int, Field(ge=1, le=1_000)] | None = None
    """Limit of model calls in one turn; null takes the fleet's default."""
    subagents: Annotated[dict[SubagentName, SubagentSpec], Field(max_length=50)] = Field(
        default_factory=dict[str, SubagentSpec]
    )
    """Helpers within a turn, by name."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Limit of tokens in one model response; null takes the fleet's default."""
    temperature: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)] | None = None
    """Sampling temperature: 0 is the least random, 1 the most. Null is the provider's default. Not allowed together
    with `thinking_budget_tokens`, nor with engines and models that do not support it."""
    thinking_budget_tokens: Annotated[int, Field(ge=1_024, le=1_000_000)] | None = None
    """Enables extended thinking. For models that choose the amount themselves, any value only enables it."""
    token_budget: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Limit of tokens, read and produced, in one turn."""
    cost_budget_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Limit of the cost of one turn."""
    timeout_s: Annotated[int, Field(ge=1, le=2_592_000)] | None = None
    """Limit of a run's duration in seconds from its first start, over all attempts. Time in which it waits (for an
    answer, an agent or a timer) does not count."""
    max_running: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Limit of concurrent runs of this agent on all workers together. Null is unlimited."""
    max_cost_usd_per_day: Annotated[float, Field(strict=True, gt=0, le=1_000_000_000, allow_inf_nan=False)] | None = (
        None
    )
    """Limit of the cost of its runs in a day of its tenant's time zone."""
    output_schema: dict[str, Any] | None = None
    """JSON schema that the final answer of each turn must match."""
    retention: ThreadRetention | None = None
    """When its unused threads are deleted; null keeps them for ever."""


TRUST_ORDER: tuple[TrustLevel, ...] = ("sandbox", "controlled", "unrestricted")
"""The levels from the least to the most."""

PoolName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
"""The name of a pool of workers."""

_Root = Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f]*$", max_length=4_096)]
_Engine = Annotated[str, StringConstraints(min_length=1, max_length=64)]


Egress = Literal["none", "proxy", "all"]
"""What programs in the sandbox reach of the network: nothing, a proxy with the rules of outbound requests, or all that
the worker's machine does."""


class Ceilings(_Value):
    """What the agents of a tenant may be given at most. The defaults are those of a new tenant."""

    trust: TrustLevel = "controlled"
    """The highest trust of an agent."""
    directories: Annotated[tuple[_Root, ...], Field(max_length=50)] = ()
    """Absolute paths on the workers. An agent's directories lie below one of them, or below the tenant's own."""
    engines: Annotated[tuple[_Engine, ...], Field(max_length=50)] | None = None
    """The engines that agents may use. Null is each that the workers have; ``scripted`` only if it is the fleet's
    default."""
    mcp_commands: Annotated[tuple[CommandPattern, ...], Field(max_length=200)] = ()
    """Patterns of the command lines that agents may start as MCP servers, of those that NOVA_TOOLS__MCP_COMMANDS
    permits."""
    max_cost_usd_per_day: Annotated[float, Field(gt=0, le=1_000_000_000, allow_inf_nan=False)] | None = None
    """Most that the tenant's runs may cost in a day, whatever budget it sets itself."""
    pool: PoolName | None = None
    """The pool of workers that executes its runs, and that executes no others but those of tenants with the same pool.
    Null is the common workers."""
    sandbox: StrictBool = True
    """Whether shell commands, MCP servers and Claude Code run in the sandbox. A worker without one refuses them."""
    egress: Egress = "proxy"
    """What shell commands and MCP servers that are programs reach of the network, in the sandbox: ``none``; ``proxy``,
    public hosts by HTTP and HTTPS, through a proxy of the worker; ``all``, whatever the worker's machine does."""


@dataclass(frozen=True, slots=True)
class Enclosure:
    """The bounds of a turn of a tenant with ceilings.

    Attributes:
        roots: Directories that its files and commands do not leave. Only the operator can replace them.
        sandbox: Whether its programs run in the sandbox.
        egress: What its commands and MCP programs reach of the network there.
    """

    roots: tuple[str, ...]
    sandbox: bool = True
    egress: Egress = "proxy"
